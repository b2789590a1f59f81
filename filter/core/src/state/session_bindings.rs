//! The endpoint that each session is bound to, while it is used.

use core::time::Duration;

use super::PluginState;
use super::generations::Generations;

/// Maximum number of sessions in one of the two generations.
const SESSIONS: usize = 65_536;

/// Bindings of sessions to endpoints. A session is given by the hash of its name, an endpoint by its index.
/// The only word of a change is the session.
#[derive(Debug)]
pub struct SessionBindings(Generations<Binding>);

#[derive(Clone, Copy, Debug)]
struct Binding {
    endpoint: usize,
    used: Duration,
}

impl SessionBindings {
    /// Bindings that are forgotten when they were not used for longer than `lifetime`.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self(Generations::new(SESSIONS, lifetime))
    }

    /// The endpoint the session is bound to at `now`.
    pub fn endpoint(&self, session: u64, now: Duration) -> Option<usize> {
        let binding = self.0.find(session)?;
        (now.abs_diff(binding.used) <= self.0.lifetime()).then_some(binding.endpoint)
    }

    /// Binds the session to an endpoint, or keeps it bound.
    fn bind(&mut self, session: u64, endpoint: usize, at: Duration) {
        self.0.insert(session, Binding { endpoint, used: at }, at);
    }
}

impl PluginState for SessionBindings {
    fn can_read(&self, words: &[u64]) -> bool {
        matches!(words, [_])
    }

    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        if let &[session] = words {
            self.bind(session, endpoint, at);
        }
    }

    /// Binds the session, unless it was bound at a later time.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        let &[session] = words else { return };
        let binding = self.0.find(session);
        // Two proxies that bind a session at the same time have to agree, whichever change arrives first.
        if binding.is_none_or(|known| (known.used, known.endpoint) < (at, endpoint)) {
            self.bind(session, endpoint, at);
        }
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
        self.0.remap(moves, |binding| &mut binding.endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    const LIFETIME: Duration = Duration::from_secs(300);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_binding_lives_as_long_as_it_is_used() {
        let mut bindings = SessionBindings::new(LIFETIME);
        bindings.bind(7, 2, at(1_000));
        assert_eq!(bindings.endpoint(7, at(1_300)), Some(2));
        assert_eq!(bindings.endpoint(7, at(1_301)), None);
        assert_eq!(bindings.endpoint(8, at(1_000)), None);
        bindings.bind(7, 2, at(1_250));
        assert_eq!(bindings.endpoint(7, at(1_550)), Some(2));
    }

    #[test]
    fn a_binding_ends_when_the_clock_is_set_back_by_more_than_it_lives() {
        let mut bindings = SessionBindings::new(LIFETIME);
        bindings.bind(7, 2, at(10_000));
        assert_eq!(bindings.endpoint(7, at(9_999)), Some(2));
        assert_eq!(bindings.endpoint(7, at(1_000)), None);
        bindings.bind(7, 1, at(1_000));
        assert_eq!(bindings.endpoint(7, at(1_000)), Some(1));
    }

    #[test]
    fn others_coming_later_do_not_shorten_a_life() {
        let mut bindings = SessionBindings::new(LIFETIME);
        bindings.bind(0, 0, at(1_000));
        for second in 1_001..1_300 {
            bindings.bind(second, 1, at(second));
        }
        assert_eq!(bindings.endpoint(0, at(1_300)), Some(0));
        bindings.bind(1, 1, at(1_301));
        assert_eq!(bindings.endpoint(1_299, at(1_590)), Some(1), "in the old generation");
    }

    #[test]
    fn the_number_of_sessions_is_bounded_and_the_recent_ones_stay() {
        let mut bindings = SessionBindings::new(LIFETIME);
        let many = 3 * SESSIONS as u64;
        for session in 0..many {
            bindings.bind(session, 1, at(1_000));
        }
        assert!(bindings.0.len() <= 2 * SESSIONS);
        assert_eq!(bindings.endpoint(many - SESSIONS as u64, at(1_000)), Some(1));
        assert_eq!(bindings.endpoint(0, at(1_000)), None);
    }

    #[test]
    fn the_latest_binding_of_several_proxies_counts_however_they_arrive() {
        for arrival in [[(1, 10), (2, 20), (3, 20)], [(3, 20), (2, 20), (1, 10)], [(2, 20), (3, 20), (1, 10)]]
        {
            let mut bindings = SessionBindings::new(LIFETIME);
            for (endpoint, seconds) in arrival {
                bindings.merge(endpoint, at(seconds), &[7]);
            }
            assert_eq!(bindings.endpoint(7, at(30)), Some(3), "{arrival:?}");
        }
    }

    #[test]
    fn bindings_follow_the_pool() {
        let mut bindings = SessionBindings::new(LIFETIME);
        bindings.bind(1, 0, at(1_000));
        bindings.bind(2, 1, at(1_000));
        bindings.remap(&[None, Some(0)]);
        assert_eq!([1, 2].map(|session| bindings.endpoint(session, at(1_000))), [None, Some(0)]);
    }
}
