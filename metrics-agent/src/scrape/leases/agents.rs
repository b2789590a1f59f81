//! The agents that scrape for one another.

use core::time::Duration;
use std::collections::HashMap;

use xxhash_rust::xxh64::xxh64;

/// How often an agent shows itself, at least: it adds an entry to the stream, also without readings.
pub(super) const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Age of its last entry from which an agent counts as gone.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(2);

/// Most other agents: the others do not count.
const MAX_AGENTS: usize = 1000;

/// This agent and the others whose entries it has read. All know the same ones, or do within [`GONE_AFTER`].
#[derive(Debug)]
pub(super) struct Agents {
    own: u64,
    /// When the others showed themselves last.
    others: HashMap<u64, Duration>,
}

impl Agents {
    pub(super) fn new(own: u64) -> Self {
        Self { own, others: HashMap::new() }
    }

    pub(super) fn is_own(&self, agent: u64) -> bool {
        agent == self.own
    }

    /// An agent has shown itself. Returns whether it is new.
    pub(super) fn note(&mut self, agent: u64, at: Duration) -> bool {
        if let Some(last) = self.others.get_mut(&agent) {
            *last = at.max(*last);
            return false;
        }
        let is_noted = !self.is_own(agent) && self.others.len() < MAX_AGENTS;
        if is_noted {
            self.others.insert(agent, at);
        }
        is_noted
    }

    /// Leaves out agents that are gone. Returns whether there were any.
    pub(super) fn drop_gone(&mut self, now: Duration) -> bool {
        let before = self.others.len();
        self.others.retain(|_, at| now.saturating_sub(*at) < GONE_AFTER);
        self.others.len() < before
    }

    /// The agent that should scrape an endpoint: the one with the largest hash of the scrape and its number (rendezvous hashing). So each
    /// gets about as many endpoints, and an agent that comes or goes moves only its own share.
    pub(super) fn preferred(&self, scrape: u64) -> u64 {
        let rank = |agent: &u64| (xxh64(&scrape.to_le_bytes(), *agent), *agent);
        self.others.keys().copied().chain([self.own]).max_by_key(rank).unwrap_or(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(9);

    /// What each of these agents knows, when all have shown themselves to all.
    fn agents(numbers: &[u64]) -> Vec<Agents> {
        let agent = |&own| {
            let mut agents = Agents::new(own);
            for &number in numbers {
                assert_eq!(agents.note(number, NOW), number != own);
            }
            agents
        };
        numbers.iter().map(agent).collect()
    }

    /// The agent that should scrape each endpoint, by what all of them know.
    fn preferred(agents: &[Agents], endpoints: u64) -> Vec<u64> {
        let of = |endpoint: u64| {
            let scrape = xxh64(&endpoint.to_le_bytes(), 0);
            let preferred = agents[0].preferred(scrape);
            assert!(agents.iter().all(|agents| agents.preferred(scrape) == preferred));
            preferred
        };
        (0..endpoints).map(of).collect()
    }

    #[test]
    fn each_of_several_agents_should_scrape_about_as_many_endpoints() {
        for count in [1, 2, 4, 8_usize] {
            let numbers: Vec<u64> = (0..count as u64).map(|n| xxh64(b"agent", n)).collect();
            let preferred = preferred(&agents(&numbers), 100);
            let even = 100.0 / count as f64;
            for agent in numbers {
                let endpoints = preferred.iter().filter(|&&preferred| preferred == agent).count();
                let share = endpoints as f64 / even;
                assert!((0.5..1.5).contains(&share), "{endpoints} of 100 endpoints, {count} agents");
            }
        }
    }

    #[test]
    fn an_agent_that_goes_moves_only_its_own_endpoints() {
        let before = preferred(&agents(&[11, 12, 13, 14]), 100);
        let after = preferred(&agents(&[11, 12, 13]), 100);
        for (before, after) in before.into_iter().zip(after) {
            assert!(before == after || before == 14);
        }
    }

    #[test]
    fn an_agent_counts_until_it_has_not_shown_itself_for_two_seconds() {
        let mut agents = Agents::new(1);
        assert!(agents.note(2, NOW) && !agents.note(2, NOW + SHOWN_EVERY) && !agents.note(2, NOW));
        assert!(!(0..100).all(|scrape| agents.preferred(scrape) == 1));
        assert!(!agents.drop_gone(NOW + GONE_AFTER), "it has shown itself since");
        assert!(agents.drop_gone(NOW + SHOWN_EVERY + GONE_AFTER));
        assert!((0..100).all(|scrape| agents.preferred(scrape) == 1));
        assert!(!agents.drop_gone(NOW + SHOWN_EVERY + GONE_AFTER));
    }

    #[test]
    fn numbers_that_a_store_makes_up_take_no_more_memory_than_a_thousand_agents() {
        let mut agents = Agents::new(0);
        let noted = (1..5_000).filter(|&agent| agents.note(agent, NOW)).count();
        assert_eq!((noted, agents.others.len()), (1_000, 1_000));
    }
}
