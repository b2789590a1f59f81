//! A line of a record, of an entry that a proxy has sent. Any client that may write can send entries, so
//! everything in them is bounded.

use core::net::{IpAddr, SocketAddr};

use endpoint_picker::pool::reading::Reading;
use endpoint_picker_wire::record::{RecordOutcome, RecordedRequest};
use serde::Serialize;

use super::key::{HashUse, RecordKey};

/// Maximum length of a name, in bytes, and of a reason.
const MAX_MODEL_BYTES: usize = 256;
const MAX_WHY_BYTES: usize = 40;

/// Maximum number of blocks of a prompt.
const MAX_BLOCKS: usize = 2048;

/// Maximum number of tokens of a prompt or a response: as traces may have.
const MAX_TOKENS: u64 = 1 << 20;

/// Tokens that a block may have.
const BLOCK_TOKENS: core::ops::RangeInclusive<u32> = 1..=1024;

/// Maximum time of a request in microseconds: a day.
const MAX_US: u64 = 24 * 3600 * 1_000_000;

/// A line of a record: a finished request, in a superset of the form of Mooncake's traces.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Line {
    /// Milliseconds since the header's `started`.
    timestamp: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_ms: Option<f64>,
    pool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    input_length: u64,
    output_length: u64,
    #[serde(skip_serializing_if = "is_false")]
    estimated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u64>,
    /// Tokens of a block; `None`: as the header has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) block_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hash_ids: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<SocketAddr>,
    why: String,
    /// Where a decision that did not act would have sent the request, and whether it agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_agrees: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_token_ms: Option<f64>,
    end_ms: f64,
    outcome: &'static str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(is: &bool) -> bool {
    !is
}

/// Makes the lines of one message.
pub(super) struct LineMaker<'a> {
    pub(super) pool: &'a str,
    pub(super) key: RecordKey,
    /// Readings of the pool's endpoints.
    pub(super) readings: &'a [Reading],
    /// The time of the proxy's clock, in microseconds, and that time since the header's `started`.
    pub(super) now_us: u64,
    pub(super) now_since_start_us: u64,
}

impl LineMaker<'_> {
    /// The line of an entry; `None`: its request began before the record, or its times cannot be.
    pub(super) fn line(&self, entry: RecordedRequest) -> Option<Line> {
        let outcome = outcome(&entry);
        let RecordedRequest { session, tenant, endpoint, shadow, block_tokens, blocks, .. } = entry;
        let at = self.now_since_start_us.checked_sub(self.now_us.checked_sub(entry.at_us)?)?;
        let times = [entry.queued_us, entry.end_us, entry.first_token_us.unwrap_or(0)];
        if times.iter().any(|&time| time > MAX_US) || entry.first_token_us > Some(entry.end_us) {
            return None;
        }
        let (model, adapter) = self.names(entry.model);
        let text = |of: HashUse| move |value: u64| format!("{:016x}", self.key.hash(of, value));
        let has_blocks = BLOCK_TOKENS.contains(&block_tokens) && !blocks.is_empty();
        let blocks = blocks.into_iter().take(if has_blocks { MAX_BLOCKS } else { 0 });
        Some(Line {
            timestamp: milliseconds(at),
            queued_ms: Some(entry.queued_us).filter(|&time| time > 0).map(milliseconds),
            pool: self.pool.to_owned(),
            model,
            adapter,
            session: session.map(text(HashUse::Session)),
            tenant: tenant.map(text(HashUse::Tenant)),
            input_length: entry.input_tokens.min(MAX_TOKENS),
            output_length: entry.output_tokens.min(MAX_TOKENS),
            estimated: entry.estimated,
            max_output_length: entry.max_output_tokens.map(|tokens| tokens.min(MAX_TOKENS)),
            cached_tokens: entry.cached_tokens.map(|tokens| tokens.min(MAX_TOKENS)),
            block_tokens: has_blocks.then_some(block_tokens),
            hash_ids: blocks.map(|block| self.key.number(HashUse::Block, block)).collect(),
            endpoint: address(&endpoint),
            why: Some(entry.why).filter(|why| is_reason(why)).unwrap_or_default(),
            shadow: shadow.as_ref().and_then(|pick| address(&pick.endpoint)),
            shadow_agrees: shadow.as_ref().map(|pick| pick.agrees),
            first_token_ms: entry.first_token_us.map(milliseconds),
            end_ms: milliseconds(entry.end_us),
            outcome,
        })
    }

    /// The base model and the adapter that a name means, as the servers list them.
    fn names(&self, name: String) -> (Option<String>, Option<String>) {
        if name.is_empty() || name.len() > MAX_MODEL_BYTES {
            return (None, None);
        }
        let lists = self.readings.iter().filter_map(|reading| reading.models.as_deref());
        let of_adapter = lists.into_iter().find(|list| list.iter().any(|it| it.is_adapter && it.id == name));
        match of_adapter {
            None => (Some(name), None),
            Some(list) => {
                let base = list.iter().find(|it| !it.is_adapter);
                (base.map(|base| base.id.clone()), Some(name))
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "to a microsecond within 285 years")]
fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e3
}

fn outcome(entry: &RecordedRequest) -> &'static str {
    match entry.outcome() {
        RecordOutcome::Neutral => "neutral",
        RecordOutcome::Served => "served",
        RecordOutcome::Failed => "failed",
        RecordOutcome::Rejected => "rejected",
    }
}

fn is_reason(why: &str) -> bool {
    why.len() <= MAX_WHY_BYTES && why.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// The address in its bytes and those of its port.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_last_chunk::<2>()?;
    let ip = match ip.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use endpoint_picker::pool::reading::ServedModel;
    use endpoint_picker_wire::record::ShadowPick;

    use super::*;

    fn make(readings: &[Reading], entry: RecordedRequest) -> Option<serde_json::Value> {
        let key = RecordKey::random().unwrap();
        let maker = LineMaker { pool: "p", key, readings, now_us: 10_000_000, now_since_start_us: 6_000_000 };
        maker.line(entry).map(|line| serde_json::to_value(line).unwrap())
    }

    fn entry() -> RecordedRequest {
        RecordedRequest { at_us: 9_000_000, end_us: 700_000, ..RecordedRequest::default() }
    }

    #[test]
    fn an_adapter_is_named_with_its_base_model() {
        let model = |id: &str, is_adapter| ServedModel { id: id.to_owned(), is_adapter };
        let models = Some(Arc::from([model("base", false), model("sql", true)]));
        let readings = [Reading::default(), Reading { models, ..Reading::default() }];
        let names = |name: &str| {
            let line = make(&readings, RecordedRequest { model: name.to_owned(), ..entry() }).unwrap();
            (line.get("model").cloned(), line.get("adapter").cloned())
        };
        assert_eq!(names("sql"), (Some("base".into()), Some("sql".into())));
        assert_eq!(names("base"), (Some("base".into()), None));
        assert_eq!(names("other"), (Some("other".into()), None));
        assert_eq!(names(""), (None, None));
        assert_eq!(names(&"x".repeat(257)), (None, None));
    }

    #[test]
    fn everything_in_an_entry_is_bounded() {
        let hostile = RecordedRequest {
            at_us: 9_000_000,
            queued_us: MAX_US,
            model: "m\n\"".to_owned(),
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            max_output_tokens: Some(u64::MAX),
            cached_tokens: Some(u64::MAX),
            block_tokens: 16,
            blocks: vec![u64::MAX; 100_000],
            endpoint: vec![1; 1000],
            why: "a secret".to_owned(),
            first_token_us: Some(MAX_US),
            end_us: MAX_US,
            outcome: 99,
            ..RecordedRequest::default()
        };
        let line = make(&[], hostile.clone()).unwrap();
        let tokens = ["input_length", "output_length", "max_output_length", "cached_tokens"];
        assert!(tokens.iter().all(|name| line[name] == MAX_TOKENS));
        assert_eq!(line["hash_ids"].as_array().unwrap().len(), MAX_BLOCKS);
        assert!(line["hash_ids"][0].as_u64().unwrap() < 1 << 53);
        assert_eq!(
            (line.get("endpoint"), &line["why"], &line["outcome"]),
            (None, &"".into(), &"neutral".into())
        );
        assert!(!serde_json::to_string(&line).unwrap().contains('\n'));
        for refused in [
            RecordedRequest { at_us: 10_000_001, ..hostile.clone() },
            RecordedRequest { at_us: 3_999_999, ..hostile.clone() },
            RecordedRequest { at_us: 0, ..hostile.clone() },
            RecordedRequest { end_us: MAX_US + 1, ..hostile.clone() },
            RecordedRequest { end_us: 1, ..hostile.clone() },
            RecordedRequest { queued_us: u64::MAX, ..hostile.clone() },
        ] {
            assert_eq!(make(&[], refused), None);
        }
        for block_tokens in [0, 1025] {
            let line = make(&[], RecordedRequest { block_tokens, ..hostile.clone() }).unwrap();
            assert_eq!((line.get("hash_ids"), line.get("block_tokens")), (None, None));
        }
    }

    #[test]
    fn a_line_has_times_since_the_start_and_addresses_of_both_families() {
        let v6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1], &[0x1f, 0x40]].concat();
        let line = make(&[], RecordedRequest { endpoint: v6, ..entry() }).unwrap();
        assert_eq!(line["endpoint"], "[2001:db8::1]:8000");
        assert_eq!((line["timestamp"].as_f64(), line["end_ms"].as_f64()), (Some(5_000.0), Some(700.0)));
        let line = make(&[], RecordedRequest { endpoint: vec![10, 0, 0, 1, 0x1f, 0x40], ..entry() });
        assert_eq!(line.unwrap()["endpoint"], "10.0.0.1:8000");
    }

    #[test]
    fn a_decision_that_did_not_act_is_in_the_line() {
        let shadow = |shadow: Option<ShadowPick>| {
            let line = make(&[], RecordedRequest { shadow, ..entry() }).unwrap();
            (line.get("shadow").cloned(), line.get("shadow_agrees").cloned())
        };
        let pick = |endpoint: &[u8], agrees| Some(ShadowPick { endpoint: endpoint.to_vec(), agrees });
        let address = "10.0.0.1:8000".into();
        assert_eq!(shadow(pick(&[10, 0, 0, 1, 0x1f, 0x40], true)), (Some(address), Some(true.into())));
        assert_eq!(shadow(pick(&[], false)), (None, Some(false.into())), "it would reject the request");
        assert_eq!(shadow(None), (None, None));
    }
}
