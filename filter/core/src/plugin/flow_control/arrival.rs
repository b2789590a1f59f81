//! A request that asks to be dispatched, as flow control and its policies see it.

use core::time::Duration;

use crate::headers::Headers;
use crate::input::prediction::TTFT_LIMIT;
use crate::plugin::parameter::duration;
use crate::state::SessionDemand;

/// The flow of requests that name none.
pub const DEFAULT_FLOW: &str = "default-flow";

/// Maximum length of a fairness id in bytes; longer ones are cut. Clients choose them.
pub const MAX_FAIRNESS_ID: usize = 256;

/// The header that names a request's flow, and its older spelling.
const FAIRNESS_ID: [&str; 2] = ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];

/// The header with the time for which the client lets its request wait.
const TTL: &str = "x-llm-d-inference-ttl";

/// Maximum of the aim in milliseconds. Go keeps durations as nanoseconds in 63 bits, and the EPP ignores
/// longer ones.
const LONGEST_SLO_MS: u64 = i64::MAX as u64 / 1_000_000;

/// A request as flow control sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The flow: requests of one fairness id and one priority.
    pub fairness_id: &'a str,
    /// Higher priorities are dispatched first.
    pub priority: i32,
    /// Length of the body.
    pub bytes: u64,
    /// When the request's headers arrived.
    pub received: Duration,
    /// The client's aim for the time to the first token.
    pub ttft_slo: Option<Duration>,
    /// When it leaves the queue, however long its band lets requests wait.
    pub deadline: Option<Duration>,
    /// Tokens that its session brings into the caches; `None`: none that count.
    pub demand: Option<SessionDemand>,
}

impl Default for Arrival<'_> {
    /// An empty request of the default flow and priority.
    fn default() -> Self {
        Self {
            fairness_id: DEFAULT_FLOW,
            priority: 0,
            bytes: 0,
            received: Duration::ZERO,
            ttft_slo: None,
            deadline: None,
            demand: None,
        }
    }
}

impl<'a> Arrival<'a> {
    /// A request with these headers. `agent_identity` is its fairness id if no header names one.
    pub fn new(
        headers: Headers<'a>,
        agent_identity: Option<&'a str>,
        priority: i32,
        bytes: u64,
        received: Duration,
    ) -> Self {
        let fairness_id = fairness_id(headers).or(agent_identity).unwrap_or(DEFAULT_FLOW);
        let ttft_slo = headers.get_either(TTFT_LIMIT).and_then(milliseconds);
        Self { fairness_id, priority, bytes, received, ttft_slo, ..Self::default() }
    }

    /// The same request, with the time to live that its client sets, by a rule of the EPP's v0.11. It can
    /// only shorten the wait: the limits of bands hold too.
    #[must_use]
    pub(crate) fn with_ttl_of_client(self, headers: Headers<'_>) -> Self {
        let ttl = headers.get(TTL).and_then(|text| duration::parse(text.trim()));
        let deadline = ttl.filter(|ttl| !ttl.is_zero()).map(|ttl| self.received.saturating_add(ttl));
        Self { deadline, ..self }
    }

    /// The beginning of the fairness id, of [`MAX_FAIRNESS_ID`] bytes at most.
    pub(crate) fn bounded_id(&self) -> &'a str {
        let longest = MAX_FAIRNESS_ID.min(self.fairness_id.len());
        (0..=longest).rev().find_map(|end| self.fairness_id.get(..end)).unwrap_or_default()
    }
}

/// The fairness id that a header names.
pub(crate) fn fairness_id(headers: Headers<'_>) -> Option<&str> {
    headers.get_either(FAIRNESS_ID)
}

/// A whole number of milliseconds from 0; a leading plus sign is allowed, as in Go.
fn milliseconds(text: &str) -> Option<Duration> {
    let number: u64 = text.trim().parse().ok()?;
    (number <= LONGEST_SLO_MS).then(|| Duration::from_millis(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[track_caller]
    fn assert_read(headers: &[(&str, &str)], fairness_id: &str, slo_ms: Option<u64>) {
        assert_read_of(false, headers, fairness_id, slo_ms);
    }

    #[track_caller]
    fn assert_read_of(agent: bool, headers: &[(&str, &str)], fairness_id: &str, slo_ms: Option<u64>) {
        let headers = headers.iter().copied().collect();
        let arrival =
            Arrival::new(Headers(&headers), Some("agent").filter(|_| agent), -1, 7, Duration::from_secs(3));
        assert_eq!((arrival.fairness_id, arrival.ttft_slo), (fairness_id, slo_ms.map(Duration::from_millis)));
        assert_eq!((arrival.priority, arrival.bytes, arrival.received.as_secs()), (-1, 7, 3));
    }

    #[test]
    fn flow_and_aim_are_read_from_the_headers() {
        assert_read(&[], "default-flow", None);
        let headers = [("x-llm-d-inference-fairness-id", "team-a"), ("x-llm-d-slo-ttft-ms", " 250 ")];
        assert_read(&headers, "team-a", Some(250));
        assert_read(&[("x-gateway-inference-fairness-id", "b"), ("x-slo-ttft-ms", "0")], "b", Some(0));
    }

    #[test]
    fn an_agent_session_is_the_flow_of_a_request_that_names_none() {
        assert_read_of(true, &[], "agent", None);
        assert_read_of(true, &[("x-llm-d-inference-fairness-id", "")], "agent", None);
        assert_read_of(true, &[("x-llm-d-inference-fairness-id", "t")], "t", None);
    }

    #[test]
    fn invalid_aims_are_ignored() {
        for value in ["soon", "-1", "1.5", "9223372036855", "99999999999999999999"] {
            assert_read(&[("x-llm-d-slo-ttft-ms", value)], "default-flow", None);
        }
        assert_read(&[("x-llm-d-slo-ttft-ms", "9223372036854")], "default-flow", Some(9_223_372_036_854));
    }

    #[test]
    fn a_client_may_set_the_time_for_which_its_request_waits() {
        let deadline = |value: &str| {
            let headers = [(TTL, value)].into_iter().collect();
            let arrival = Arrival { received: Duration::from_secs(3), ..Arrival::default() };
            arrival.with_ttl_of_client(Headers(&headers)).deadline
        };
        assert_eq!(deadline("1500ms"), Some(Duration::from_millis(4500)));
        assert_eq!(deadline(" 1m "), Some(Duration::from_secs(63)));
        for ignored in ["", "0", "0s", "-1s", "5", "soon", "1e400s"] {
            assert_eq!(deadline(ignored), None, "{ignored:?}");
        }
    }
}
