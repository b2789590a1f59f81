//! Servers with a number of places.

use std::collections::VecDeque;

/// Servers that work on [`PLACES`](Self::PLACES) requests at a time, for a time that the simulation
/// determines.
#[derive(Debug)]
pub struct PlaceServers<T> {
    working: Vec<usize>,
    waiting: Vec<VecDeque<T>>,
}

impl<T> PlaceServers<T> {
    /// Requests that a server works on at a time. With this number it is busy.
    pub const PLACES: usize = 4;

    /// Idle servers.
    pub fn new(number: usize) -> Self {
        Self { working: vec![0; number], waiting: (0..number).map(|_| VecDeque::new()).collect() }
    }

    fn is_busy(&self, server: usize) -> bool {
        self.working[server] == Self::PLACES
    }

    /// Whether a request for a server would wait, while another has a free place.
    pub fn would_be_herded(&self, server: usize) -> bool {
        self.is_busy(server) && (0..self.working.len()).any(|other| !self.is_busy(other))
    }

    /// Takes a request. Returns it if the server begins with it.
    pub fn add(&mut self, server: usize, request: T) -> Option<T> {
        if self.is_busy(server) {
            self.waiting[server].push_back(request);
            return None;
        }
        self.working[server] += 1;
        Some(request)
    }

    /// Ends a request. Returns the request that the server begins with.
    pub fn end(&mut self, server: usize) -> Option<T> {
        let next = self.waiting[server].pop_front();
        self.working[server] -= usize::from(next.is_none());
        next
    }
}
