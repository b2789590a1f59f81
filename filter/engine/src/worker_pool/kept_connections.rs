//! Resets of connections that were kept for a next request.
//!
//! A server that closes a kept connection just when the next request arrives on it has not failed: the
//! request never reached it. Envoy then tries the next server, and tells the filter neither why the first one
//! did not respond nor whether its connection was a new one. But such a reset needs a connection that has
//! rested for as long as servers keep them, and follows a response. So of an endpoint that has served this
//! worker, and then rested, the first request without a response does not count as a failure. The next one
//! does, unless the endpoint has served a request in between: a server that has died costs each worker one
//! request more, which another server serves.

use core::time::Duration;

use hashbrown::HashMap;

/// Minimum rest. Servers keep connections for seconds: uvicorn, and so vLLM and SGLang, for 5 s. The shipped
/// configurations of Envoy close them after 4 s, so there no rest explains a failure.
const MIN_REST: Duration = Duration::from_secs(4);

/// Maximum rest: Envoy closes kept connections after an hour, unless it is configured to do so earlier.
const MAX_REST: Duration = Duration::from_secs(60 * 60);

/// The endpoints to which this worker may have kept connections.
#[derive(Debug, Default)]
pub(crate) struct KeptConnections {
    /// When the last request was sent that they have served, by their keys.
    served: HashMap<u64, Duration>,
}

impl KeptConnections {
    /// The endpoint serves a request that was sent at this time.
    pub(crate) fn served(&mut self, endpoint: u64, at: Duration) {
        self.served.insert(endpoint, at);
    }

    /// The endpoint has failed a request for a reason of its own.
    pub(crate) fn failed(&mut self, endpoint: u64) {
        self.served.remove(&endpoint);
    }

    /// Whether a request that was sent at this time may have no response because its kept connection was
    /// closed.
    pub(crate) fn explain(&mut self, endpoint: u64, at: Duration) -> bool {
        let last = self.served.remove(&endpoint);
        last.is_some_and(|last| (MIN_REST..MAX_REST).contains(&at.saturating_sub(last)))
    }

    /// Forgets all endpoints but these.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.served.retain(|&endpoint, _| is_kept(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);

    fn explained(rest: Duration) -> [bool; 2] {
        let mut kept = KeptConnections::default();
        kept.served(1, START);
        [kept.explain(1, START + rest), kept.explain(1, START + rest)]
    }

    #[test]
    fn one_request_after_a_rest_is_explained() {
        assert_eq!(explained(MIN_REST / 2), [false; 2], "the connection has not rested");
        assert_eq!(explained(MIN_REST), [true, false]);
        assert_eq!(explained(MAX_REST), [false; 2]);
    }

    #[test]
    fn an_endpoint_that_has_not_served_or_has_failed_since_is_not_explained() {
        let mut kept = KeptConnections::default();
        assert!(!kept.explain(1, START));
        kept.served(1, START);
        kept.failed(1);
        assert!(!kept.explain(1, START + MIN_REST));
        kept.served(2, START);
        kept.keep(|endpoint| endpoint != 2);
        assert!(!kept.explain(2, START + MIN_REST));
    }
}
