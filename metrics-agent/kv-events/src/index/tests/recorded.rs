//! Events and requests of real servers: the cached tokens of each request are predicted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;

use super::*;
use crate::batch::Batch;
use crate::sequence::{KvMessage, Sequence, Step};

#[derive(Deserialize)]
pub(super) struct RecordedMessage {
    pub(super) at: f64,
    pub(super) source: String,
    pub(super) frames: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct RecordedRequest {
    pub(super) at: f64,
    pub(super) note: String,
    pub(super) model: String,
    pub(super) salt: Option<String>,
    pub(super) prompts: Vec<Vec<u32>>,
    /// The text of each prompt, if it is recorded; `None`: the request has token ids.
    #[serde(default)]
    pub(super) texts: Vec<Option<String>>,
    pub(super) cached_tokens: usize,
}

pub(super) fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) fn message(frames: &[String]) -> KvMessage {
    let frames: Vec<Bytes> = frames.iter().map(|frame| STANDARD.decode(frame).unwrap().into()).collect();
    KvMessage::of(&frames).unwrap()
}

/// The outcome of a replay.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Replayed {
    pub(super) requests: usize,
    /// The notes of requests whose cached tokens were not predicted.
    pub(super) wrong: Vec<String>,
    /// The notes of requests that met an empty cache, because of a reset that the server published with their
    /// own blocks.
    pub(super) after_reset: Vec<String>,
}

impl Replayed {
    /// All of this number of requests were predicted.
    pub(super) fn all(requests: usize) -> Self {
        Self { requests, ..Self::default() }
    }

    /// Compares the cached tokens of a request with what was predicted for each of its prompts. `next`: the
    /// message that it causes.
    pub(super) fn add(
        &mut self,
        request: RecordedRequest,
        predicted: &[usize],
        next: Option<&RecordedMessage>,
    ) {
        self.requests += 1;
        let first =
            next.and_then(|next| Batch::read(&message(&next.frames).payload)?.events.into_iter().next());
        if first == Some(KvEvent::Cleared) && request.cached_tokens == 0 {
            self.after_reset.push(request.note);
        } else if !predicted.contains(&request.cached_tokens) {
            // Of several prompts the usage has one.
            self.wrong.push(request.note);
        }
    }
}

/// Replays recorded messages with the requests that caused them.
fn replay(index: &mut Index, id: CacheId, messages: &str, requests: &str) -> Replayed {
    const SIZE: usize = 32;
    let (messages, requests) = (lines::<RecordedMessage>(messages), lines::<RecordedRequest>(requests));
    let mut sequence = Sequence::new(false);
    sequence.connected();
    let mut messages = messages.iter().peekable();
    let mut replayed = Replayed::default();
    for request in requests {
        while let Some(recorded) = messages.next_if(|message| message.at < request.at) {
            let message = message(&recorded.frames);
            assert!(matches!(sequence.published(&message), Step::Apply | Step::ClearAndApply));
            let batch = Batch::read(&message.payload).unwrap();
            assert_eq!(batch.unusable, 0);
            batch.events.iter().for_each(|event| index.apply(id, event, 0));
            index.check();
        }
        let adapter = (request.model != "tiny").then_some(request.model.as_bytes());
        let salt = request.salt.as_ref().map(String::as_bytes);
        let predicted = request.prompts.iter().map(|prompt| {
            // The last token is always computed.
            index.run(id, adapter, salt, prompt, SIZE).min((prompt.len() - 1) / SIZE) * SIZE
        });
        let predicted: Vec<_> = predicted.collect();
        replayed.add(request, &predicted, messages.peek().copied());
    }
    assert!(sequence.is_complete());
    replayed
}

#[test]
fn recorded_events_predict_the_cached_tokens_of_all_recorded_requests() {
    let (mut index, id) = one();
    let replayed = replay(&mut index, id, captured!("base.events.jsonl"), captured!("base.requests.jsonl"));
    assert_eq!(replayed, Replayed { after_reset: vec!["after the reset".to_owned()], ..Replayed::all(31) });
    // The same address after a restart: another hash, and less room.
    index.clear(id);
    let replayed = replay(&mut index, id, captured!("evict.events.jsonl"), captured!("evict.requests.jsonl"));
    assert_eq!(replayed, Replayed::all(18));
    assert!(index.contents(id).blocks <= 39, "the server has 39 blocks: {:?}", index.contents(id));
}

#[test]
fn the_ranks_of_a_server_are_caches_of_their_own_with_common_nodes() {
    let mut index = index(1000);
    let ranks = ["24040", "24041"].map(|source| (source, index.add_cache(server(1), None)));
    let messages: Vec<RecordedMessage> = lines(captured!("dp2.events.jsonl"));
    let requests: Vec<RecordedRequest> = lines(captured!("dp2.requests.jsonl"));
    let mut next = messages.iter().peekable();
    for request in &requests {
        // The rank that computes a request publishes its blocks next.
        let rank = messages.iter().find(|message| message.at >= request.at);
        let rank = rank.map(|message| ranks.iter().find(|(source, _)| *source == message.source).unwrap().1);
        while let Some(recorded) = next.next_if(|message| message.at < request.at) {
            let id = ranks.iter().find(|(source, _)| *source == recorded.source).unwrap().1;
            let batch = Batch::read(&message(&recorded.frames).payload).unwrap();
            batch.events.iter().for_each(|event| index.apply(id, event, 0));
        }
        index.check();
        let cached = index.run(rank.unwrap(), None, None, &request.prompts[0], 32) * 32;
        assert_eq!(cached, request.cached_tokens, "{}", request.note);
    }
    let [(_, a), (_, b)] = ranks;
    let each = index.contents(a).blocks + index.contents(b).blocks;
    assert_eq!(index.totals().blocks as u64, each);
    assert_eq!(index.totals().nodes as u64, each - 2, "both have the first two blocks");
}

#[test]
fn recorded_replays_continue_the_sequence() {
    #[derive(Deserialize)]
    struct Recorded {
        received: Option<Vec<String>>,
    }
    let base: Vec<RecordedMessage> = lines(captured!("base.events.jsonl"));
    let replay: Vec<Recorded> = lines(captured!("replay.jsonl"));
    let mut replay = replay.into_iter().filter_map(|line| Some(message(&line.received?)));
    let mut sequence = Sequence::new(true);
    assert_eq!(sequence.connected(), Some(0));
    for recorded in &base[..=10] {
        assert_eq!(sequence.replayed(&message(&recorded.frames)), Step::Apply);
    }
    // The connection is lost after message 10; the replay from 10 on has the rest.
    assert_eq!(sequence.connected(), Some(10));
    assert_eq!(sequence.replayed(&replay.next().unwrap()), Step::Ignore);
    let rest: Vec<_> = replay.by_ref().take_while(|message| !message.is_end()).collect();
    assert!(rest.iter().all(|message| sequence.replayed(message) == Step::Apply));
    assert_eq!(rest.len(), base.len() - 11);
    assert!(!sequence.replay_ended() && sequence.is_complete());
    assert!(replay.next().unwrap().is_end(), "the replay from 1000000 is empty");
}
