//! The endpoint that requests with the same prompt go to while a burst of them lasts.

use core::time::Duration;

use smallvec::smallvec;

use super::generations::Generations;
use super::{PluginState, Words};

/// Maximum number of prompts in one of the two generations, 4096 in all.
const PROMPTS: usize = 2048;

/// Groups of requests with the same prompt that came within one window. A prompt is given by its hash, an
/// endpoint by its index.
///
/// The words of a change are the prompt, the nanoseconds since its group began, and the number of requests
/// that the group has with it.
#[derive(Clone, Debug)]
pub struct Bursts(Generations<Group>);

/// The requests with one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The index of the endpoint that they go to.
    pub endpoint: usize,
    /// The time of the last request.
    at: Duration,
    /// The time of the first request.
    pub(crate) began: Duration,
    /// The number of requests.
    pub requests: u64,
}

impl Bursts {
    /// Groups that last for this time from their first request on.
    pub(crate) fn new(window: Duration) -> Self {
        Self(Generations::new(PROMPTS, window))
    }

    /// The words of the change by which a group has this request.
    pub(crate) fn words(prompt: u64, age: Duration, requests: u64) -> Words {
        smallvec![prompt, u64::try_from(age.as_nanos()).unwrap_or(u64::MAX), requests]
    }

    /// The group of this prompt at `now`, if its window has not ended.
    pub fn group(&self, prompt: u64, now: Duration) -> Option<Group> {
        let group = self.0.find(prompt)?;
        (now.abs_diff(group.began) <= self.0.lifetime()).then_some(group)
    }
}

/// The prompt and its group after a change; `None`: the words are not of a change.
fn read(endpoint: usize, at: Duration, words: &[u64]) -> Option<(u64, Group)> {
    let &[prompt, age, requests] = words else { return None };
    let began = at.saturating_sub(Duration::from_nanos(age));
    Some((prompt, Group { endpoint, at, began, requests }))
}

impl PluginState for Bursts {
    fn can_read(&self, words: &[u64]) -> bool {
        matches!(words, [_, _, _])
    }

    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        if let Some((prompt, group)) = read(endpoint, at, words) {
            self.0.insert(prompt, group, group.at);
        }
    }

    /// The group of the latest request counts: proxies that begin one at a time agree, whichever change
    /// arrives first.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        let Some((prompt, group)) = read(endpoint, at, words) else { return };
        let order = |group: &Group| (group.at, group.endpoint, group.requests, group.began);
        if self.0.find(prompt).is_none_or(|known| order(&known) < order(&group)) {
            self.0.insert(prompt, group, group.at);
        }
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
        self.0.remap(moves, |group| &mut group.endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    const WINDOW: Duration = Duration::from_millis(100);

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(1_000_000 + milliseconds)
    }

    fn endpoint(bursts: &Bursts, prompt: u64, milliseconds: u64) -> Option<usize> {
        bursts.group(prompt, at(milliseconds)).map(|group| group.endpoint)
    }

    #[test]
    fn a_group_ends_a_window_after_its_first_request() {
        let mut bursts = Bursts::new(WINDOW);
        bursts.apply(2, at(0), &Bursts::words(7, Duration::ZERO, 1));
        bursts.apply(2, at(60), &Bursts::words(7, Duration::from_millis(60), 2));
        assert_eq!(bursts.group(7, at(100)).map(|group| (group.endpoint, group.requests)), Some((2, 2)));
        assert_eq!(endpoint(&bursts, 7, 101), None);
        assert_eq!(endpoint(&bursts, 8, 0), None);
    }

    #[test]
    fn the_number_of_prompts_is_bounded_and_those_in_their_window_stay() {
        let mut bursts = Bursts::new(WINDOW);
        for prompt in 0..10_000 {
            bursts.apply(1, at(0), &Bursts::words(prompt, Duration::ZERO, 1));
        }
        assert!(bursts.0.len() <= 2 * PROMPTS);
        assert_eq!(endpoint(&bursts, 9_999, 50), Some(1));
        assert_eq!(endpoint(&bursts, 0, 50), None);
        let mut bursts = Bursts::new(WINDOW);
        bursts.apply(1, at(0), &Bursts::words(0, Duration::ZERO, 1));
        bursts.apply(1, at(1), &Bursts::words(1, Duration::ZERO, 1));
        bursts.apply(1, at(99), &Bursts::words(2, Duration::ZERO, 1));
        assert_eq!([0, 1, 2].map(|prompt| endpoint(&bursts, prompt, 100)), [Some(1); 3]);
    }

    #[test]
    fn changes_of_several_proxies_end_in_one_state_however_they_arrive() {
        let age = Duration::from_millis;
        let changes = [(1, 0, 0, 1), (2, 10, 0, 1), (1, 20, 20, 2), (2, 20, 10, 2), (2, 20, 10, 3)];
        for arrival in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
            let mut bursts = Bursts::new(WINDOW);
            for (endpoint, time, since, requests) in arrival.map(|index: usize| changes[index]) {
                bursts.merge(endpoint, at(time), &Bursts::words(7, age(since), requests));
                bursts.merge(endpoint, at(time), &Bursts::words(7, age(since), requests));
            }
            let expected = Group { endpoint: 2, at: at(20), began: at(10), requests: 3 };
            assert_eq!(bursts.group(7, at(30)), Some(expected), "{arrival:?}");
        }
    }

    #[test]
    fn groups_follow_the_pool_and_foreign_words_do_no_harm() {
        let mut bursts = Bursts::new(WINDOW);
        bursts.apply(0, at(0), &Bursts::words(1, Duration::ZERO, 1));
        bursts.apply(1, at(0), &[2, u64::MAX, u64::MAX]);
        bursts.apply(1, at(0), &Bursts::words(3, Duration::ZERO, 1));
        bursts.apply(1, at(0), &[4]);
        assert!(!bursts.can_read(&[4]) && bursts.can_read(&[1, 2, 3]));
        bursts.remap(&[None, Some(0)]);
        assert_eq!([1, 2, 3, 4].map(|prompt| endpoint(&bursts, prompt, 0)), [None, None, Some(0), None]);
    }
}
