//! The changes of a [`LatencyState`](super::LatencyState), and what a request is expected to do.

use core::time::Duration;

use smallvec::smallvec;

use super::calibration::Outcome;
use super::slopes::Sample;
use crate::state::{StateChange, Words};

/// Limits of tokens, requests and milliseconds in a sample, beyond any server. From larger numbers nothing is
/// learnt.
const MAX: [f64; 3] = [1e7, 65_536.0, 1e7];

/// A request that was sent to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Tokens of the prompt that the endpoint has not cached.
    pub(crate) uncached: u64,
    /// Tokens of the prompt.
    pub(crate) prompt: u64,
    /// The key of the model, if it may be an adapter; 0 if it is none.
    pub(crate) adapter: u64,
    /// Whether nothing else was in flight there: earlier requests have ended, also those of workers that
    /// vanished.
    pub(crate) is_alone: bool,
    /// The client's limit for each further token in microseconds, 0 without one; `None`: limits are not
    /// counted.
    pub(crate) token_limit: Option<u32>,
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
        /// The time to it, if that was predicted.
        outcome: Option<Outcome>,
    },
    /// It is over.
    Ended {
        /// Tokens of the prompt.
        prompt: u64,
        /// The key of the model, if it may be an adapter; 0 if it is none.
        adapter: u64,
        /// Whether its first output came.
        is_answered: bool,
        /// Time from the first output of a complete response to its end.
        rest: Option<Duration>,
        /// The part that only a predictor learns from.
        predicted: Option<PredictedEnd>,
    },
}

/// The end of a request whose times were predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PredictedEnd {
    /// The limit of [`Sent`].
    pub(super) token_limit: u32,
    /// Requests in flight when it was sent, and the time of a token after the first.
    pub(super) token: Option<Sample>,
    /// The time to the end of the response, and the predicted time to its first output.
    pub(super) whole: Option<Outcome>,
}

/// The first word of each kind.
const SENT: u64 = 0;
const SENT_ALONE: u64 = 1;
const ANSWERED: u64 = 2;
const ENDED: u64 = 3;
const ENDED_UNANSWERED: u64 = 4;

impl Sent {
    /// The words of the change.
    pub(crate) fn words(self) -> Words {
        let Self { uncached, prompt, adapter, is_alone, token_limit } = self;
        let kind = if is_alone { SENT_ALONE } else { SENT };
        let mut words: Words = smallvec![kind, uncached, prompt, adapter];
        words.extend(token_limit.map(u64::from));
        words
    }
}

impl LatencyChange {
    /// The change that these words stand for; `None` for words that no change has.
    pub(super) fn read(words: &[u64]) -> Option<Self> {
        match *words {
            [kind @ (SENT | SENT_ALONE), uncached, prompt, adapter, ref limit @ ..] if limit.len() <= 1 => {
                let token_limit = limit.first().map(|&limit| u32::try_from(limit).unwrap_or(u32::MAX));
                let is_alone = kind == SENT_ALONE;
                Some(Self::Sent(Sent { uncached, prompt, adapter, is_alone, token_limit }))
            }
            [ANSWERED] => Some(Self::Answered { sample: None, outcome: None }),
            [ANSWERED, actual, predicted] => {
                Some(Self::Answered { sample: None, outcome: read_outcome(actual, predicted) })
            }
            [ANSWERED, tokens, requests, took] => {
                Some(Self::Answered { sample: read_sample(tokens, requests, took), outcome: None })
            }
            [ANSWERED, tokens, requests, took, actual, predicted] => Some(Self::Answered {
                sample: read_sample(tokens, requests, took),
                outcome: read_outcome(actual, predicted),
            }),
            [kind @ (ENDED | ENDED_UNANSWERED), prompt, adapter, ref end @ ..] => {
                let (rest, predicted) = match *end {
                    [] => (NOTHING, None),
                    [rest] => (rest, None),
                    [rest, limit, requests, token, actual, first] => {
                        let token_limit = u32::try_from(limit).unwrap_or(u32::MAX);
                        let (token, whole) = (read_sample(0, requests, token), read_outcome(actual, first));
                        (rest, Some(PredictedEnd { token_limit, token, whole }))
                    }
                    _ => return None,
                };
                let rest = (rest != NOTHING).then(|| Duration::from_micros(rest));
                Some(Self::Ended { prompt, adapter, is_answered: kind == ENDED, rest, predicted })
            }
            _ => None,
        }
    }

    /// Whether other proxies learn from it: it has a sample, or a time that was predicted.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Sent(_) => false,
            Self::Answered { sample, outcome } => sample.is_some() || outcome.is_some(),
            Self::Ended { predicted, .. } => {
                predicted.is_some_and(|end| end.token.is_some() || end.whole.is_some())
            }
        }
    }

    /// Its words.
    pub(super) fn words(self) -> Words {
        match self {
            Self::Sent(sent) => sent.words(),
            Self::Answered { sample, outcome } => {
                let mut words: Words = smallvec![ANSWERED];
                if let Some(sample) = sample {
                    words.extend_from_slice(&sample_words(sample));
                }
                if let Some(outcome) = outcome {
                    words.extend_from_slice(&outcome_words(outcome));
                }
                words
            }
            Self::Ended { prompt, adapter, is_answered, rest, predicted } => {
                let kind = if is_answered { ENDED } else { ENDED_UNANSWERED };
                let rest = rest.map(|rest| u64::try_from(rest.as_micros()).unwrap_or(NOTHING));
                let mut words: Words = smallvec![kind, prompt, adapter];
                if let Some(PredictedEnd { token_limit, token, whole }) = predicted {
                    let [_, requests, token] = token.map_or([NOTHING; 3], sample_words);
                    let [actual, first] = whole.map_or([NOTHING; 2], outcome_words);
                    words.extend([
                        rest.unwrap_or(NOTHING),
                        token_limit.into(),
                        requests,
                        token,
                        actual,
                        first,
                    ]);
                } else {
                    words.extend(rest);
                }
                words
            }
        }
    }
}

/// A word for a value that is missing.
const NOTHING: u64 = u64::MAX;

fn read_sample(tokens: u64, requests: u64, microseconds: u64) -> Option<Sample> {
    let tokens = tokens as f64;
    let [requests, milliseconds] = [requests, microseconds].map(|word| word as f64 * 1e-3);
    Some(Sample { tokens, requests, milliseconds }).filter(is_within_bounds)
}

/// Whether a sample is learnt from. The word for a missing value is beyond the bounds, too.
fn is_within_bounds(&Sample { tokens, requests, milliseconds }: &Sample) -> bool {
    tokens <= MAX[0] && requests <= MAX[1] && milliseconds <= MAX[2]
}

fn sample_words(Sample { tokens, requests, milliseconds }: Sample) -> [u64; 3] {
    [whole(tokens), whole(requests * 1e3), whole(milliseconds * 1e3)]
}

fn read_outcome(actual: u64, predicted: u64) -> Option<Outcome> {
    let [actual, predicted] = [actual, predicted].map(|word| word as f64 * 1e-3);
    (actual <= MAX[2] && predicted <= MAX[2]).then_some(Outcome { actual, predicted })
}

fn outcome_words(Outcome { actual, predicted }: Outcome) -> [u64; 2] {
    [whole(actual * 1e3), whole(predicted * 1e3)]
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is the intent")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The expected course of a request that was sent to an endpoint. The observer of its response makes the
/// changes that follow from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// The plugin's [key](crate::plugin::Instance::key).
    pub(crate) plugin: u64,
    /// The endpoint's [key](crate::pool::Endpoint::key).
    pub(crate) endpoint: u64,
    /// Tokens of the prompt.
    pub(crate) prompt: u64,
    /// The key of the model, if it may be an adapter; 0 if it is none.
    pub(crate) adapter: u64,
    /// Tokens that the endpoint has to read until its first output.
    pub(crate) tokens: f64,
    /// Other requests in flight there.
    pub(crate) requests: f64,
    /// Milliseconds to its first output.
    pub(crate) milliseconds: f64,
    /// Whether nothing but reading is expected to delay it, so that its time shows how fast the endpoint
    /// reads.
    pub(crate) is_sample: bool,
    /// Whether the endpoint computes the prompt for the destination, and is done with the first output.
    pub(crate) is_prefill: bool,
    /// Whether it has images, videos or audio: their tokens are its client's word, so that its times show
    /// nothing about the tokens.
    pub(crate) has_media: bool,
    /// The kind of prediction of its times; `None`: they were not predicted.
    pub(crate) predicted: Option<PredictedTimes>,
}

/// How the times of a request were predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PredictedTimes {
    /// Whether the time to the end of the response was predicted, and not the time to the first output of a
    /// stream.
    pub(crate) is_whole: bool,
    /// The client's limit for each further token in microseconds; 0 without one.
    pub(crate) token_limit: u32,
}

/// A response that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompleteResponse {
    /// Time from the decision to its end.
    pub whole: Duration,
    /// Time from its first output to its end, if it is a stream of tokens.
    pub rest: Option<Duration>,
    /// Its chunks. Each counts as a token, as in the EPP.
    pub chunks: u64,
    /// The key of the endpoint that sent it; `None` if the endpoint is not in the pool.
    pub by: Option<u64>,
}

impl CompleteResponse {
    /// Milliseconds for each token after the first; `None`: the response is not a stream of several tokens.
    pub fn token_milliseconds(&self) -> Option<f64> {
        let rest = self.rest.filter(|_| self.chunks > 1)?;
        Some(milliseconds(rest) / (self.chunks - 1) as f64)
    }
}

/// The milliseconds of a time, up to the longest that is learnt from.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).min(MAX[2])
}

impl Expectation {
    /// The key of the endpoint that the request was sent to.
    pub fn endpoint(&self) -> u64 {
        self.endpoint
    }

    /// Whether the endpoint computes the prompt for the destination. It is done with the first output, and
    /// its expectation [ends](Self::ended) then.
    pub fn is_prefill(&self) -> bool {
        self.is_prefill
    }

    /// The expected milliseconds from the decision to the first output.
    pub fn milliseconds(&self) -> f64 {
        self.milliseconds
    }

    /// The change when the first output of the response comes at this time. `took` is the time since the
    /// decision, if the response is a stream of tokens from the expected endpoint; other responses show
    /// nothing.
    pub fn answered(&self, at: Duration, took: Option<Duration>) -> StateChange {
        let sample = took.filter(|_| self.is_sample).map(|took| Sample {
            tokens: self.tokens,
            requests: self.requests,
            milliseconds: milliseconds(took),
        });
        let sample = sample.filter(is_within_bounds);
        let is_predicted = self.predicted.is_some_and(|predicted| !predicted.is_whole && !self.has_media);
        let outcome = took.filter(|_| is_predicted);
        let outcome =
            outcome.map(|took| Outcome { actual: milliseconds(took), predicted: self.milliseconds });
        self.change(at, LatencyChange::Answered { sample, outcome })
    }

    /// The change when the request is over. `is_answered`: its first output came. `response`: it is complete.
    pub fn ended(&self, at: Duration, is_answered: bool, response: Option<&CompleteResponse>) -> StateChange {
        let Self { prompt, adapter, requests, .. } = *self;
        let rest = response.and_then(|response| response.rest);
        // Times of another endpoint show nothing about the prediction for the expected one.
        let own = response.filter(|response| response.by == Some(self.endpoint));
        let predicted = self.predicted.map(|PredictedTimes { is_whole, token_limit }| {
            let token = own.filter(|_| !is_whole).and_then(CompleteResponse::token_milliseconds);
            let whole = own.filter(|_| is_whole && !self.has_media);
            let whole = whole.map(|response| milliseconds(response.whole));
            PredictedEnd {
                token_limit,
                token: token
                    .map(|milliseconds| Sample { tokens: 0.0, requests, milliseconds })
                    .filter(is_within_bounds),
                whole: whole.map(|actual| Outcome { actual, predicted: self.milliseconds }),
            }
        });
        self.change(at, LatencyChange::Ended { prompt, adapter, is_answered, rest, predicted })
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
        let outcome = Some(Outcome { actual: 9.5, predicted: 7.25 });
        let sent = Sent { uncached: 7, prompt: 9, adapter: u64::MAX, is_alone: true, token_limit: None };
        let ended = |rest, predicted| LatencyChange::Ended {
            prompt: 9,
            adapter: 3,
            is_answered: rest != second,
            rest,
            predicted,
        };
        let token = Some(Sample { tokens: 0.0, ..sample });
        for change in [
            LatencyChange::Sent(sent),
            LatencyChange::Sent(Sent { is_alone: false, token_limit: Some(40_000), ..sent }),
            LatencyChange::Answered { sample: None, outcome: None },
            LatencyChange::Answered { sample: Some(sample), outcome: None },
            LatencyChange::Answered { sample: None, outcome },
            LatencyChange::Answered { sample: Some(sample), outcome },
            ended(second, None),
            ended(None, None),
            ended(second, Some(PredictedEnd { token_limit: 0, token, whole: None })),
            ended(None, Some(PredictedEnd { token_limit: 7, token: None, whole: outcome })),
        ] {
            assert_eq!(LatencyChange::read(&change.words()), Some(change));
        }
    }

    #[test]
    fn other_words_are_not_read_and_nothing_is_learnt_beyond_the_bounds() {
        for words in
            [&[][..], &[5], &[SENT, 1, 2], &[ANSWERED, 1], &[ANSWERED, 1, 2, 3, 4], &[ENDED, 1, 2, 3, 4]]
        {
            assert_eq!(LatencyChange::read(words), None, "{words:?}");
        }
        let nothing = Some(LatencyChange::Answered { sample: None, outcome: None });
        let max = [10_000_000, 65_536_000, 10_000_000_000];
        for number in 0..3 {
            let mut words = [ANSWERED, max[0], max[1], max[2]];
            let sample = Sample { tokens: 1e7, requests: 65_536.0, milliseconds: 1e7 };
            let read = LatencyChange::read(&words);
            assert_eq!(read, Some(LatencyChange::Answered { sample: Some(sample), outcome: None }));
            for beyond in [max[number] + 1, u64::MAX - 1, u64::MAX] {
                words[number + 1] = beyond;
                assert_eq!(LatencyChange::read(&words), nothing, "{words:?}");
            }
        }
        for words in [[ANSWERED, 5, max[2] + 1], [ANSWERED, max[2] + 1, 5], [ANSWERED, u64::MAX, u64::MAX]] {
            assert_eq!(LatencyChange::read(&words), nothing, "{words:?}");
        }
    }

    #[test]
    fn nothing_is_learnt_from_a_request_whose_tokens_are_its_clients_word_or_beyond_the_bounds() {
        let predicted = |is_whole| Some(PredictedTimes { is_whole, token_limit: 7 });
        let expectation = Expectation {
            plugin: 0,
            endpoint: 0,
            prompt: 9,
            adapter: 0,
            tokens: 100.0,
            requests: 1.0,
            milliseconds: 10.0,
            is_sample: true,
            is_prefill: false,
            has_media: false,
            predicted: predicted(false),
        };
        let second = Duration::from_secs(1);
        let response = CompleteResponse { whole: second, rest: None, chunks: 1, by: Some(0) };
        let words = |expectation: Expectation| {
            let whole = Expectation { predicted: predicted(true), ..expectation };
            [expectation.answered(second, Some(second)), whole.ended(second, true, Some(&response))]
                .map(|change| LatencyChange::read(&change.words).unwrap().is_shared())
        };
        assert_eq!(words(expectation), [true, true]);
        assert_eq!(words(Expectation { has_media: true, is_sample: false, ..expectation }), [false, false]);
        let beyond = Expectation { tokens: 1e7 + 1.0, milliseconds: 1e7 + 1.0, ..expectation };
        assert_eq!(words(beyond), [false, false]);
    }
}
