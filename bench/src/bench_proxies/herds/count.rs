//! Requests that meet a busy server while another is idle.

use std::ops::Range;
use std::time::Instant;

/// The requests of a load, and those of them that met a busy server while another was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HerdCount {
    pub(crate) requests: usize,
    pub(crate) herded: usize,
}

impl HerdCount {
    /// Counts from the times at which requests were at each server. A server is busy when all of its `places` are taken, and idle when one
    /// is free.
    pub(crate) fn of(servers: &[Vec<Range<Instant>>], places: usize) -> Self {
        // Ends come before the beginnings of the same moment.
        let mut events: Vec<(Instant, bool, usize)> = Vec::new();
        for (server, times) in servers.iter().enumerate() {
            events.extend(times.iter().map(|time| (time.start, true, server)));
            events.extend(times.iter().map(|time| (time.end, false, server)));
        }
        events.sort_unstable();
        let mut at_server = vec![0_usize; servers.len()];
        let mut count = Self::default();
        for (_, is_arrival, server) in events {
            if is_arrival {
                let is_busy = at_server[server] >= places;
                count.requests += 1;
                count.herded += usize::from(is_busy && at_server.iter().any(|&others| others < places));
                at_server[server] += 1;
            } else {
                at_server[server] -= 1;
            }
        }
        count
    }

    /// The share of the requests that met a busy server while another was idle.
    pub(crate) fn share(self) -> f64 {
        self.herded as f64 / self.requests as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn count(servers: &[&[Range<u64>]], places: usize) -> HerdCount {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let times = |times: &&[Range<u64>]| times.iter().map(|time| at(time.start)..at(time.end)).collect();
        HerdCount::of(&servers.iter().map(times).collect::<Vec<_>>(), places)
    }

    #[test]
    fn a_request_is_herded_if_its_server_is_full_and_another_is_not() {
        assert_eq!(count(&[&[0..10, 5..15], &[]], 1), HerdCount { requests: 2, herded: 1 });
        assert_eq!(count(&[&[0..10, 5..15], &[]], 2).herded, 0, "a place was free");
        assert_eq!(count(&[&[0..10, 5..15], &[2..4, 4..20]], 1).herded, 0, "no other was idle");
        assert_eq!(count(&[&[0..10, 10..15], &[]], 1).herded, 0, "the one before had ended");
        assert_eq!(count(&[&[0..9, 1..9, 2..9, 3..9], &[]], 2).herded, 2, "those in the queue count");
    }
}
