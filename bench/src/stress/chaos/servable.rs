//! Which failed requests were servable; [`super`] has the rules.

use super::fault::Fault;
use crate::load::{Failure, FailureKind, ID, ResponseKind};
use endpoint_picker_model_server::ModelServer;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// The statuses and reasons with which a queue that evicts nothing may refuse a request, as
/// docs/operate/flow-control.md lists them.
const REFUSALS: [(u16, &str); 3] =
    [(429, "rejected-saturated"), (429, "rejected-ttl-expired"), (503, "rejected-no-endpoints")];

/// The faults so far, and the requests that each server has received.
#[derive(Debug)]
pub(crate) struct FaultLog {
    /// Whether requests wait in a queue, which may refuse them.
    has_queue: bool,
    /// Whether a stream continues at another server when its server dies.
    resumes_streams: bool,
    faults: Vec<FaultPeriod>,
    received: HashMap<String, HashSet<u64>>,
}

#[derive(Debug)]
struct FaultPeriod {
    fault: Fault,
    address: String,
    from: Instant,
    until: Instant,
}

/// Why a request was not servable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unservable {
    ServerDied,
    ProxyDied,
    NeverAnswered,
    Refused(u16, &'static str),
}

impl Unservable {
    pub(crate) fn text(self) -> String {
        match self {
            Self::ServerDied => "the server died while it answered".to_owned(),
            Self::ProxyDied => "the proxy was killed during the answer".to_owned(),
            Self::NeverAnswered => "the server accepted it and never answered".to_owned(),
            Self::Refused(status, reason) => format!("{status} {reason}"),
        }
    }
}

impl FaultLog {
    /// Without a queue, no request may be refused; with resumptions, no stream may be cut.
    pub(crate) fn new(has_queue: bool, resumes_streams: bool) -> Self {
        Self { has_queue, resumes_streams, faults: Vec::new(), received: HashMap::new() }
    }

    /// Adds a fault that ends now, of the server or proxy with this address if it is one of either.
    pub(crate) fn add(&mut self, fault: Fault, address: String, from: Instant) {
        self.faults.push(FaultPeriod { fault, address, from, until: Instant::now() });
    }

    /// Takes the servers' records of requests.
    pub(crate) fn take_requests(&mut self, servers: &[ModelServer]) {
        for server in servers {
            let received = self.received.entry(server.endpoint()).or_default();
            let requests = server.take_requests();
            received.extend(requests.iter().filter_map(|request| request.header(ID)?.parse::<u64>().ok()));
        }
    }

    /// Why this failed request was not servable; `None` if it was.
    pub(crate) fn unservable(&self, failure: &Failure) -> Option<Unservable> {
        if let FailureKind::Status { status, server: None, dropped: Some(dropped), .. } = &failure.kind
            && self.has_queue
        {
            let (status, reason) = REFUSALS.iter().find(|refusal| **refusal == (*status, dropped))?;
            return Some(Unservable::Refused(*status, reason));
        }
        let is_resumed = self.resumes_streams && matches!(failure.response, ResponseKind::Stream);
        let overlapping =
            self.faults.iter().filter(|period| period.from <= failure.ended && failure.sent <= period.until);
        for FaultPeriod { fault, address, .. } in overlapping {
            match (fault, &failure.kind) {
                (Fault::ServerKilled, FailureKind::CutOff { server: Some(by), .. })
                    if by == address && !is_resumed =>
                {
                    return Some(Unservable::ServerDied);
                }
                (Fault::ProxyKilled, FailureKind::CutOff { proxy: Some(by), .. })
                    if by.to_string() == *address =>
                {
                    return Some(Unservable::ProxyDied);
                }
                // An Envoy that another has replaced ends what is left after some seconds.
                (Fault::ServerHangs, FailureKind::Timeout(_) | FailureKind::NoResponse(_))
                    if self.received.get(address).is_some_and(|ids| ids.contains(&failure.id)) =>
                {
                    return Some(Unservable::NeverAnswered);
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: FailureKind) -> Failure {
        let now = Instant::now();
        Failure { id: 1, sent: now, ended: now, response: ResponseKind::Stream, kind }
    }

    fn refused(status: u16, dropped: Option<&str>) -> Failure {
        let dropped = dropped.map(str::to_owned);
        failure(FailureKind::Status { status, server: None, dropped, text: String::new() })
    }

    #[test]
    fn only_a_documented_refusal_of_a_queue_is_no_loss() {
        let with_queue = FaultLog::new(true, false);
        let saturated = refused(429, Some("rejected-saturated"));
        let expected = Some(Unservable::Refused(429, "rejected-saturated"));
        assert_eq!(with_queue.unservable(&saturated), expected);
        assert_eq!(with_queue.unservable(&refused(503, Some("rejected-saturated"))), None);
        assert_eq!(with_queue.unservable(&refused(429, None)), None);
        assert_eq!(FaultLog::new(false, false).unservable(&saturated), None);
    }

    #[test]
    fn an_answer_that_breaks_off_was_servable_unless_its_own_proxy_was_killed() {
        let mut log = FaultLog::new(false, false);
        let begin = Instant::now();
        let cut_off = |proxy: &str| {
            failure(FailureKind::CutOff { server: None, proxy: proxy.parse().ok(), reason: String::new() })
        };
        let [killed, other] = ["127.0.0.1:1", "127.0.0.1:2"].map(cut_off);
        log.add(Fault::ProxyKilled, "127.0.0.1:1".to_owned(), begin);
        assert_eq!(log.unservable(&killed), Some(Unservable::ProxyDied));
        assert_eq!(log.unservable(&other), None);
    }

    #[test]
    fn a_stream_of_a_server_that_died_was_servable_if_streams_are_resumed() {
        let begin = Instant::now();
        let stream = failure(FailureKind::CutOff {
            server: Some("127.0.0.1:1".to_owned()),
            proxy: None,
            reason: String::new(),
        });
        let whole = Failure { response: ResponseKind::Completion, ..stream.clone() };
        for (resumes_streams, of_stream) in [(false, Some(Unservable::ServerDied)), (true, None)] {
            let mut log = FaultLog::new(false, resumes_streams);
            log.add(Fault::ServerKilled, "127.0.0.1:1".to_owned(), begin);
            assert_eq!(log.unservable(&stream), of_stream);
            assert_eq!(log.unservable(&whole), Some(Unservable::ServerDied));
        }
    }
}
