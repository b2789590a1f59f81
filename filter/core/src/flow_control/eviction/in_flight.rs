//! Requests that went on and have not ended.

use core::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::flow_control::outcome::Ticket;

/// Requests in flight, and those among them that may be evicted.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct InFlight {
    by_ticket: HashMap<Ticket, Running>,
    /// Sheddable requests: the lowest priority first, and of one priority the newest.
    victims: BTreeSet<(i32, Reverse<u64>, Ticket)>,
    evicted: usize,
    /// Requests so far.
    sequence: u64,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(in crate::flow_control) struct Running {
    priority: i32,
    sequence: u64,
    is_evicted: bool,
    /// Its fairness id, where a policy counts what programs are served.
    pub(in crate::flow_control) program: Option<Arc<str>>,
}

impl InFlight {
    pub(in crate::flow_control) fn begin(
        &mut self,
        ticket: Ticket,
        priority: i32,
        program: Option<Arc<str>>,
    ) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.by_ticket.insert(ticket, Running { priority, sequence, is_evicted: false, program });
        if priority < 0 {
            self.victims.insert((priority, Reverse(sequence), ticket));
        }
    }

    pub(in crate::flow_control) fn end(&mut self, ticket: Ticket) -> Option<Running> {
        let running = self.by_ticket.remove(&ticket)?;
        self.victims.remove(&(running.priority, Reverse(running.sequence), ticket));
        self.evicted -= usize::from(running.is_evicted);
        Some(running)
    }

    /// The programs of the requests.
    pub(in crate::flow_control) fn programs(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_ticket.values().filter_map(|running| running.program.as_ref())
    }

    pub(in crate::flow_control) fn contains(&self, ticket: Ticket) -> bool {
        self.by_ticket.contains_key(&ticket)
    }

    /// Requests in flight without evicted ones that have not ended yet.
    pub(in crate::flow_control) fn len(&self) -> usize {
        self.by_ticket.len() - self.evicted
    }

    /// Requests that may be evicted.
    pub(in crate::flow_control) fn evictable(&self) -> usize {
        self.victims.len()
    }

    /// The priority of the request that would be evicted first.
    pub(in crate::flow_control) fn victim_priority(&self) -> Option<i32> {
        self.victims.first().map(|(priority, ..)| *priority)
    }

    /// Marks the next victim, if its priority is below `bound`.
    pub(in crate::flow_control) fn evict(&mut self, bound: i32) -> Option<Ticket> {
        self.victims.first().filter(|(priority, ..)| *priority < bound)?;
        let (_, _, ticket) = self.victims.pop_first()?;
        self.by_ticket.get_mut(&ticket)?.is_evicted = true;
        self.evicted += 1;
        Some(ticket)
    }
}
