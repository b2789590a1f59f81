//! A request that is recorded, from its decision to its end.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use endpoint_picker::pipeline::{Pipeline, Prepared};
use endpoint_picker::policy::{MAX_RECORDED_BLOCKS, RECORDED_BLOCK_TOKENS, RecordSample};
use endpoint_picker::request::Request;
use endpoint_picker::request::prompt::{BlockHashes, block_hashes};
use endpoint_picker::request::session::{SessionName, SessionTurn};
use endpoint_picker::response::outcome::ServerOutcome;
use endpoint_picker::response::usage::Usage;
use endpoint_picker_wire::record::{RecordOutcome, RecordedRequest, ShadowPick};

/// Maximum length of the name of a model, in bytes. Clients choose it.
const MAX_MODEL_BYTES: usize = 256;

/// A request that is recorded.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    /// The entry but for what follows.
    entry: RecordedRequest,
    /// The server that responded, or the first destination, and why the request went there.
    endpoint: Option<SocketAddr>,
    why: &'static str,
    at: Duration,
    /// When it ended, as far as that is known before its exchange ends.
    ended: Option<Duration>,
}

impl RequestRecord {
    /// The record of a request with a body that is decided now, as it was prepared by this pipeline; `None`:
    /// it is not in the sample. `turn` is its place in its session.
    #[cold]
    #[inline(never)]
    pub(crate) fn of(
        sample: RecordSample,
        request: &Request<'_>,
        prepared: Prepared<'_>,
        pipeline: &Pipeline,
        turn: Option<SessionTurn>,
        now: Duration,
    ) -> Option<Box<Self>> {
        let name = pipeline.session_name_of(&prepared).map(SessionName::hash);
        if name.is_some_and(|name| !sample.contains(name)) {
            return None;
        }
        let blocks = prepared.into_blocks();
        let (block_tokens, hashes) = blocks.unwrap_or_else(|| (RECORDED_BLOCK_TOKENS, hash(request)));
        let mut blocks = hashes.into_all();
        // The first block stays in all turns of a session without a name; the key of its turns changes when
        // its endpoint leaves. A request with neither name nor prompt is a session of its own.
        let unnamed = || blocks.first().copied().unwrap_or_else(|| micros(now));
        if name.is_none() && !sample.contains(unnamed()) {
            return None;
        }
        let session = name.or_else(|| turn.map(|turn| turn.key));
        blocks.truncate(MAX_RECORDED_BLOCKS);
        let model = Some(request.model).filter(|model| model.len() <= MAX_MODEL_BYTES);
        let entry = RecordedRequest {
            at_us: micros(now),
            model: model.unwrap_or_default().to_owned(),
            session,
            tenant: pipeline.tenant(request.headers),
            input_tokens: request.input_tokens(),
            max_output_tokens: request.max_output_tokens,
            block_tokens,
            blocks,
            ..RecordedRequest::default()
        };
        Some(Box::new(Self::new(entry, now)))
    }

    /// The record of a request that is decided now and goes nowhere yet.
    pub(super) fn new(entry: RecordedRequest, now: Duration) -> Self {
        Self { entry, endpoint: None, why: "", at: now, ended: None }
    }

    /// Another decision about the request does not act: its first destination, `None` if it has none, and
    /// whether it agrees with the acting decision.
    pub(crate) fn compared(&mut self, (first, agrees): (Option<SocketAddr>, bool)) {
        self.entry.shadow = Some(ShadowPick { endpoint: first.map(bytes_of).unwrap_or_default(), agrees });
    }

    /// The request goes to this destination first, for this reason, after this wait.
    pub(crate) fn routed(&mut self, to: Option<SocketAddr>, why: &'static str, waited: Option<Duration>) {
        (self.endpoint, self.why) = (to, why);
        self.entry.queued_us = waited.map_or(0, micros);
    }

    /// The picker responds to the request itself, for this reason.
    pub(crate) fn rejected(&mut self, why: &'static str, waited: Option<Duration>) {
        self.routed(None, why, waited);
        self.entry.set_outcome(RecordOutcome::Rejected);
        self.ended = Some(self.at);
    }

    /// The head of a response has come from this server. `outcome` is the proof that it gives, if it gives
    /// one.
    #[cold]
    #[inline(never)]
    pub(crate) fn responds(
        &mut self,
        by: Option<SocketAddr>,
        is_elsewhere: bool,
        outcome: Option<ServerOutcome>,
    ) {
        if by.is_some_and(|by| self.endpoint != Some(by)) {
            (self.endpoint, self.why) = (by, if is_elsewhere { "elsewhere" } else { "retry" });
        }
        if let Some(outcome) = outcome {
            self.proves(outcome);
        }
    }

    /// The response has proved this about its server.
    pub(crate) fn proves(&mut self, outcome: ServerOutcome) {
        self.entry.set_outcome(match outcome {
            ServerOutcome::Served => RecordOutcome::Served,
            ServerOutcome::Failed => RecordOutcome::Failed,
            ServerOutcome::Neutral => RecordOutcome::Neutral,
        });
    }

    /// The first output has come, of a stream of tokens after this time.
    pub(crate) fn has_output(&mut self, after: Option<Duration>) {
        self.entry.first_token_us = after.map(micros);
    }

    /// The request has ended at this time, unless it has ended before.
    pub(crate) fn ends(&mut self, now: Duration) {
        self.ended.get_or_insert(now);
    }

    /// The request is over. `usage` is that of its response, of which this many chunks have come.
    #[cold]
    #[inline(never)]
    pub(crate) fn close(&mut self, usage: Option<Usage>, chunks: u64) {
        let Self { entry, at, ended, .. } = self;
        if let Some(usage) = usage.filter(|usage| usage.prompt() > 0) {
            (entry.input_tokens, entry.output_tokens) = (usage.prompt(), usage.output);
            entry.cached_tokens = usage.cached;
        } else {
            entry.estimated = true;
            if entry.first_token_us.is_some() {
                entry.output_tokens = chunks.max(1);
            }
        }
        let first = entry.first_token_us.unwrap_or(0);
        entry.end_us = ended.map_or(first, |ended| micros(ended.saturating_sub(*at)));
    }

    /// Its size in memory, in bytes; of its texts only the one that clients choose. Encoded it is smaller.
    pub(super) fn size(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.entry.blocks) + self.entry.model.len()
    }

    /// The entry of a request that is over.
    pub(super) fn into_entry(self) -> RecordedRequest {
        let Self { mut entry, endpoint, why, .. } = self;
        entry.endpoint = endpoint.map(bytes_of).unwrap_or_default();
        why.clone_into(&mut entry.why);
        entry
    }
}

/// The blocks of a prompt that no rule has cut.
fn hash(request: &Request<'_>) -> BlockHashes {
    let Request { prompt, model, cache_salt, .. } = *request;
    prompt.map_or_else(BlockHashes::default, |prompt| {
        block_hashes(prompt, model, cache_salt, RECORDED_BLOCK_TOKENS as usize, MAX_RECORDED_BLOCKS)
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The bytes of an address, then those of its port.
fn bytes_of(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&ip.octets()[..], &port].concat(),
        IpAddr::V6(ip) => [&ip.octets()[..], &port].concat(),
    }
}
