//! The changes of a [`LatencyState`](super::LatencyState), and what a request is expected to do.

use core::time::Duration;

use super::slopes::Sample;
use crate::state::StateChange;

/// Limits of tokens, requests and milliseconds in a sample, beyond any server.
const MAX: [f64; 3] = [1e7, 65_536.0, 1e7];

/// A request that was sent to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Tokens of the prompt that the endpoint has not cached.
    pub(crate) uncached: u64,
    /// Tokens of the prompt.
    pub(crate) prompt: u64,
    /// The model, if it is an adapter; 0 if it is none.
    pub(crate) adapter: u64,
    /// Whether nothing else was in flight there: earlier requests have ended, also those of workers that vanished.
    pub(crate) is_alone: bool,
}

/// One change. Tokens are whole, times have microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LatencyChange {
    /// A request was sent to the endpoint.
    Sent(Sent),
    /// The first chunk of its response came.
    Answered {
        /// The sample that it is, if any.
        sample: Option<Sample>,
    },
    /// It is over.
    Ended {
        /// Tokens of the prompt.
        prompt: u64,
        /// The model, if it is an adapter; 0 if it is none.
        adapter: u64,
        /// Whether its first chunk came.
        is_answered: bool,
        /// Time from the first chunk of a complete response to its end.
        rest: Option<Duration>,
    },
}

/// The first word of each kind.
const SENT: u64 = 0;
const SENT_ALONE: u64 = 1;
const ANSWERED: u64 = 2;
const ENDED: u64 = 3;
const ENDED_UNANSWERED: u64 = 4;

impl Sent {
    /// The words of the change.
    pub(crate) fn words(self) -> Vec<u64> {
        let Self { uncached, prompt, adapter, is_alone } = self;
        vec![if is_alone { SENT_ALONE } else { SENT }, uncached, prompt, adapter]
    }
}

impl LatencyChange {
    /// The change that these words stand for; `None` for words that no change has.
    pub(super) fn read(words: &[u64]) -> Option<Self> {
        let duration = |&microseconds: &u64| Duration::from_micros(microseconds);
        match *words {
            [kind @ (SENT | SENT_ALONE), uncached, prompt, adapter] => {
                Some(Self::Sent(Sent { uncached, prompt, adapter, is_alone: kind == SENT_ALONE }))
            }
            [ANSWERED] => Some(Self::Answered { sample: None }),
            [ANSWERED, tokens, requests, microseconds] => {
                let read = |word: u64, unit: f64, max: f64| (word as f64 * unit).min(max);
                let sample = Sample {
                    tokens: read(tokens, 1.0, MAX[0]),
                    requests: read(requests, 1e-3, MAX[1]),
                    milliseconds: read(microseconds, 1e-3, MAX[2]),
                };
                Some(Self::Answered { sample: Some(sample) })
            }
            [kind @ (ENDED | ENDED_UNANSWERED), prompt, adapter, ref rest @ ..] if rest.len() <= 1 => {
                let is_answered = kind == ENDED;
                Some(Self::Ended { prompt, adapter, is_answered, rest: rest.first().map(duration) })
            }
            _ => None,
        }
    }

    /// Its words.
    pub(super) fn words(self) -> Vec<u64> {
        match self {
            Self::Sent(sent) => sent.words(),
            Self::Answered { sample: None } => vec![ANSWERED],
            Self::Answered { sample: Some(Sample { tokens, requests, milliseconds }) } => {
                vec![ANSWERED, whole(tokens), whole(requests * 1e3), whole(milliseconds * 1e3)]
            }
            Self::Ended { prompt, adapter, is_answered, rest } => {
                let kind = if is_answered { ENDED } else { ENDED_UNANSWERED };
                let rest = rest.map(|rest| u64::try_from(rest.as_micros()).unwrap_or(u64::MAX));
                [kind, prompt, adapter].into_iter().chain(rest).collect()
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is the intent")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The expected course of a request that was sent to an endpoint. The observer of its response makes the changes that follow from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// The plugin's [key](crate::plugin::Instance::key).
    pub(crate) plugin: u64,
    /// The endpoint's [key](crate::pool::Endpoint::key).
    pub(crate) endpoint: u64,
    /// Tokens of the prompt.
    pub(crate) prompt: u64,
    /// The model, if it is an adapter; 0 if it is none.
    pub(crate) adapter: u64,
    /// Tokens that the endpoint has to read until its first chunk.
    pub(crate) tokens: f64,
    /// Other requests in flight there.
    pub(crate) requests: f64,
    /// Milliseconds to its first chunk.
    pub(crate) milliseconds: f64,
    /// Whether nothing but reading is expected to delay it, so that its time shows how fast the endpoint reads.
    pub(crate) is_sample: bool,
}

impl Expectation {
    /// The key of the endpoint that the request was sent to.
    pub fn endpoint(&self) -> u64 {
        self.endpoint
    }

    /// The expected milliseconds from the decision to the first chunk.
    pub fn milliseconds(&self) -> f64 {
        self.milliseconds
    }

    /// The change when the first chunk of the response comes at this time. `took` is the time since the decision, if the response is a
    /// stream of tokens from the expected endpoint; other responses show nothing.
    pub fn answered(&self, at: Duration, took: Option<Duration>) -> StateChange {
        let sample = took.filter(|_| self.is_sample).map(|took| Sample {
            tokens: self.tokens.min(MAX[0]),
            requests: self.requests.min(MAX[1]),
            milliseconds: (took.as_secs_f64() * 1e3).min(MAX[2]),
        });
        self.change(at, LatencyChange::Answered { sample })
    }

    /// The change when the request is over. `is_answered`: its first chunk came. `rest` is the time from the first chunk of a stream of
    /// tokens to its end, if the response is complete.
    pub fn ended(&self, at: Duration, is_answered: bool, rest: Option<Duration>) -> StateChange {
        let Self { prompt, adapter, .. } = *self;
        self.change(at, LatencyChange::Ended { prompt, adapter, is_answered, rest })
    }

    fn change(&self, at: Duration, change: LatencyChange) -> StateChange {
        StateChange { plugin: self.plugin, endpoint: self.endpoint, at, words: change.words() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn changes_are_read_as_they_were_written() {
        let sample = Sample { tokens: 123.0, requests: 4.25, milliseconds: 17.125 };
        let second = Some(Duration::from_secs(1));
        for change in [
            LatencyChange::Sent(Sent { uncached: 7, prompt: 9, adapter: u64::MAX, is_alone: true }),
            LatencyChange::Sent(Sent { uncached: u64::MAX, prompt: 9, adapter: 0, is_alone: false }),
            LatencyChange::Answered { sample: None },
            LatencyChange::Answered { sample: Some(sample) },
            LatencyChange::Ended { prompt: 9, adapter: 3, is_answered: true, rest: second },
            LatencyChange::Ended { prompt: 9, adapter: 3, is_answered: false, rest: None },
        ] {
            assert_eq!(LatencyChange::read(&change.words()), Some(change));
        }
    }

    #[test]
    fn other_words_are_not_read_and_numbers_are_bounded() {
        for words in
            [&[][..], &[5], &[SENT, 1, 2], &[ANSWERED, 1], &[ANSWERED, 1, 2, 3, 4], &[ENDED, 1, 2, 3, 4]]
        {
            assert_eq!(LatencyChange::read(words), None, "{words:?}");
        }
        let max = Sample { tokens: 1e7, requests: 65_536.0, milliseconds: 1e7 };
        let read = LatencyChange::read(&[ANSWERED, u64::MAX, u64::MAX, u64::MAX]);
        assert_eq!(read, Some(LatencyChange::Answered { sample: Some(max) }));
    }
}
