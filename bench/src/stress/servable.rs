//! Which failed requests were servable; [`super::chaos`] has the rules.

use super::fault::Fault;
use crate::load::{Failure, FailureKind, ID};
use endpoint_picker_harness::stack::Stack;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// The faults of the servers so far, and the requests that each server has received.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    faults: Vec<FaultPeriod>,
    received: HashMap<String, HashSet<u64>>,
}

#[derive(Debug)]
struct FaultPeriod {
    server: String,
    fault: Fault,
    from: Instant,
    until: Instant,
}

/// Why a request was not servable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unservable {
    DiedWhileAnswering,
    NeverAnswered,
}

impl Unservable {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::DiedWhileAnswering => "the server died while it answered",
            Self::NeverAnswered => "the server accepted it and never answered",
        }
    }
}

impl FaultLog {
    /// Adds a fault of `server` that ends now.
    pub(crate) fn add(&mut self, fault: Fault, server: &str, from: Instant) {
        self.faults.push(FaultPeriod { server: server.to_owned(), fault, from, until: Instant::now() });
    }

    /// Takes the servers' records of requests.
    pub(crate) fn take_requests(&mut self, stack: &Stack) {
        for server in stack.servers() {
            let received = self.received.entry(server.endpoint()).or_default();
            let requests = server.take_requests();
            received.extend(requests.iter().filter_map(|request| request.header(ID)?.parse::<u64>().ok()));
        }
    }

    /// Why this failed request was not servable; `None` if it was.
    pub(crate) fn unservable(&self, failure: &Failure) -> Option<Unservable> {
        let overlapping =
            self.faults.iter().filter(|period| period.from <= failure.ended && failure.sent <= period.until);
        for FaultPeriod { server, fault, .. } in overlapping {
            match (fault, &failure.kind) {
                (Fault::ServerKilled, FailureKind::CutOff { server: Some(by), .. }) if by == server => {
                    return Some(Unservable::DiedWhileAnswering);
                }
                (Fault::ServerHangs, FailureKind::Timeout(_))
                    if self.received.get(server).is_some_and(|ids| ids.contains(&failure.id)) =>
                {
                    return Some(Unservable::NeverAnswered);
                }
                _ => {}
            }
        }
        None
    }
}
