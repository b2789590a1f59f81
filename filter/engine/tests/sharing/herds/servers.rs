//! Servers that work on some requests at a time.

use std::collections::VecDeque;

/// Requests that a server works on at a time. With as many it is busy.
const PLACES: usize = 4;

/// Servers with their requests: those that they work on, and those that wait.
pub(super) struct Servers<Request> {
    working: Vec<usize>,
    waiting: Vec<VecDeque<Request>>,
}

impl<Request> Servers<Request> {
    pub(super) fn new(number: usize) -> Self {
        Self { working: vec![0; number], waiting: (0..number).map(|_| VecDeque::new()).collect() }
    }

    fn is_busy(&self, server: usize) -> bool {
        self.working[server] == PLACES
    }

    /// Whether a request for a server would wait, while another has a free place.
    pub(super) fn would_be_herded(&self, server: usize) -> bool {
        self.is_busy(server) && (0..self.working.len()).any(|other| !self.is_busy(other))
    }

    /// A request arrives. Returns it if the server begins with it.
    pub(super) fn arrive(&mut self, server: usize, request: Request) -> Option<Request> {
        if self.is_busy(server) {
            self.waiting[server].push_back(request);
            return None;
        }
        self.working[server] += 1;
        Some(request)
    }

    /// A server has answered a request. Returns the one that it begins with.
    pub(super) fn answer(&mut self, server: usize) -> Option<Request> {
        let next = self.waiting[server].pop_front();
        self.working[server] -= usize::from(next.is_none());
        next
    }
}
