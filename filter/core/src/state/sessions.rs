//! Sessions, by the ends of the prompts that they sent last.

use core::time::Duration;

use super::PluginState;
use super::generations::Generations;

/// Maximum number of prompts in one of the two generations: at most 3 MiB for both.
const PROMPTS: usize = 32_768;

/// The time after which a session that sent nothing has ended. Of recorded agents' gaps, 1.4 % are longer
/// than half of it.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The session of each prompt that was sent, by the hash of the prompt's last full block and the session's
/// name. A session that goes to another endpoint stays one; those whose endpoint leaves or restarts begin
/// again. The words of a change are that hash, and the session's key.
#[derive(Debug)]
pub struct Sessions(Generations<PromptOfSession>);

#[derive(Clone, Copy, Debug)]
struct PromptOfSession {
    session: u64,
    endpoint: usize,
    sent: Duration,
}

impl Default for Sessions {
    fn default() -> Self {
        Self(Generations::new(PROMPTS, LIFETIME))
    }
}

impl Sessions {
    /// The session of the prompt with this end.
    pub(crate) fn of_prompt(&self, end: u64, now: Duration) -> Option<u64> {
        let prompt = self.0.find(end)?;
        (now.abs_diff(prompt.sent) <= self.0.lifetime()).then_some(prompt.session)
    }
}

impl PluginState for Sessions {
    fn can_read(&self, words: &[u64]) -> bool {
        matches!(words, [_, _])
    }

    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        if let &[end, session] = words {
            self.0.insert(end, PromptOfSession { session, endpoint, sent: at }, at);
        }
    }

    /// Two proxies that begin one session at the same time have to agree, whichever change arrives first.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        let &[end, session] = words else { return };
        let known = self.0.find(end);
        if known.is_none_or(|known| (known.sent, known.session, known.endpoint) < (at, session, endpoint)) {
            self.apply(endpoint, at, words);
        }
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
        self.0.remap(moves, |prompt| &mut prompt.endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    const NOW: Duration = Duration::from_secs(10_000);

    #[test]
    fn a_session_ends_an_hour_after_its_last_prompt_or_with_its_endpoint() {
        let mut sessions = Sessions::default();
        sessions.apply(0, NOW, &[1, 7]);
        sessions.apply(1, NOW, &[2, 8]);
        assert_eq!(sessions.of_prompt(1, NOW + LIFETIME), Some(7));
        assert_eq!(sessions.of_prompt(1, NOW + LIFETIME + Duration::from_secs(1)), None);
        sessions.remap(&[None, Some(0)]);
        assert_eq!([1, 2, 3].map(|end| sessions.of_prompt(end, NOW)), [None, Some(8), None]);
    }

    #[test]
    fn the_number_of_prompts_is_bounded_and_the_recent_ones_stay() {
        let mut sessions = Sessions::default();
        let many = 3 * PROMPTS as u64;
        (0..many).for_each(|end| sessions.apply(0, NOW, &[end, end]));
        assert!(sessions.0.len() <= 2 * PROMPTS);
        assert_eq!(sessions.of_prompt(many - PROMPTS as u64, NOW), Some(many - PROMPTS as u64));
        assert_eq!(sessions.of_prompt(0, NOW), None);
    }

    #[test]
    fn proxies_agree_however_their_changes_arrive_and_skip_other_words() {
        let changes = [(0, 7), (1, 9), (0, 8)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut sessions = Sessions::default();
            for (endpoint, session) in order.map(|at: usize| changes[at]) {
                sessions.merge(endpoint, NOW, &[1, session]);
            }
            assert_eq!(sessions.of_prompt(1, NOW), Some(9));
            sessions.merge(0, NOW, &[1]);
            sessions.apply(0, NOW, &[1, 2, 3]);
            assert_eq!(sessions.of_prompt(1, NOW), Some(9));
        }
        assert!(!Sessions::default().can_read(&[1]) && Sessions::default().can_read(&[1, 2]));
    }
}
