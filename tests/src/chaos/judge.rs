//! Whose fault a failure was; see [`super`] for the rules.

use super::fault::Fault;
use crate::stack::Stack;
use crate::traffic::{Failure, ID, Trouble};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// What happened to servers, and which requests each of them has got.
#[derive(Debug, Default)]
pub(super) struct Judge {
    strikes: Vec<Strike>,
    received: HashMap<String, HashSet<u64>>,
}

#[derive(Debug)]
struct Strike {
    server: String,
    fault: Fault,
    from: Instant,
    until: Instant,
}

/// Why a failure was not to be avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Excuse {
    ServerDiedWhileAnswering,
    ServerNeverAnswered,
}

impl Excuse {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::ServerDiedWhileAnswering => "the server died while it answered",
            Self::ServerNeverAnswered => "the server took it and never answered",
        }
    }
}

impl Judge {
    /// `server` was concerned by a fault until now.
    pub(super) fn struck(&mut self, fault: Fault, server: &str, from: Instant) {
        self.strikes.push(Strike { server: server.to_owned(), fault, from, until: Instant::now() });
    }

    /// Takes over what the servers have received.
    pub(super) fn learn(&mut self, stack: &Stack) {
        for server in stack.servers() {
            let received = self.received.entry(server.endpoint()).or_default();
            let requests = server.take_requests();
            received.extend(requests.iter().filter_map(|request| request.header(ID)?.parse::<u64>().ok()));
        }
    }

    /// Why this failure is none of ours; `None` if it was a servable request.
    pub(super) fn excuse(&self, failure: &Failure) -> Option<Excuse> {
        let overlapping =
            self.strikes.iter().filter(|it| it.from <= failure.ended && failure.sent <= it.until);
        for Strike { server, fault, .. } in overlapping {
            match (fault, &failure.trouble) {
                (Fault::ServerKilled, Trouble::CutOff { server: Some(by), .. }) if by == server => {
                    return Some(Excuse::ServerDiedWhileAnswering);
                }
                (Fault::ServerHangs, Trouble::Timeout)
                    if self.received.get(server).is_some_and(|ids| ids.contains(&failure.id)) =>
                {
                    return Some(Excuse::ServerNeverAnswered);
                }
                _ => {}
            }
        }
        None
    }
}
