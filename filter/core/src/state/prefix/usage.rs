//! The usage in responses, from which the index learns how many tokens prompts really have and how much of it
//! servers really hold.

use core::time::Duration;

use hashbrown::HashMap;
use xxhash_rust::xxh64::xxh64;

use crate::pool::load::MAX_REQUEST_TOKENS;
use crate::state::Words;

/// Marks the words of a sample: no capacity is so large.
pub(super) const SAMPLE: u64 = u64::MAX;

/// Models whose tokens are counted; the one whose last sample is oldest gives its place to a new one.
const MAX_MODELS: usize = 256;

/// Samples from which a mean counts.
const MIN_SAMPLES: u32 = 8;

/// Tokens from which a prompt is a sample of its model's tokens: those of a chat template are most of a short
/// prompt.
const MIN_TOKENS: u64 = 64;

/// Limit of the tokens of a prompt, as a factor of the estimate and as a divisor: from 1 to 16 bytes per
/// token.
const MAX_FACTOR: f64 = 4.0;

/// Factor of the weight of older samples of a model with each new one: the last hundred responses, because
/// the bytes of a token depend on what clients write.
const KEPT: f64 = 0.99;

/// Change of an endpoint's share with a sample that is entirely wrong. Less [`REST`] it takes a tenth: ten
/// such samples in a row leave 35 % of the share.
const STEP: f64 = 1.0 / 8.0;

/// The error at which a share rests: a fifth of the predicted tokens is missing. An index that is too small
/// sends prompts away from the caches that have them, and then nothing shows that it is too small.
const REST: f64 = 0.2;

/// Minimum of an endpoint's share. With an index of nothing no prompt would match, and no response would
/// show that the endpoint has more.
const MIN_SHARE: f64 = 1.0 / 16.0;

/// Identifies a model by its name.
pub(crate) fn model_key(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

/// Tokens of a model as a factor of the estimate of four bytes for each, 1/4..=4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenScale(f64);

impl Default for TokenScale {
    fn default() -> Self {
        Self::ONE
    }
}

impl TokenScale {
    /// The estimate as it is.
    pub const ONE: Self = Self(1.0);

    /// The tokens of a text that was estimated to have this many.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, which is the intent"
    )]
    pub fn tokens(self, estimated: u64) -> u64 {
        if self == Self::ONE { estimated } else { (estimated as f64 * self.0).round() as u64 }
    }
}

/// The usage of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsageSample {
    pub(super) model: u64,
    /// Tokens of the prompt: estimated, and as the server counted them.
    pub(super) estimated: u64,
    pub(super) prompt: u64,
    /// Cached tokens of the prompt; `None` if the server does not report them.
    pub(super) cached: Option<CachedSample>,
}

/// Cached tokens of a prompt, as the index predicted them and as the server had them. They are equal where
/// they differ by a block at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedSample {
    pub(super) predicted: u64,
    pub(super) actual: u64,
}

impl UsageSample {
    pub(super) fn words(&self) -> Words {
        let Self { model, estimated, prompt, cached } = *self;
        let cached = cached.map(|CachedSample { predicted, actual }| [predicted, actual]);
        [SAMPLE, model, estimated, prompt].into_iter().chain(cached.into_iter().flatten()).collect()
    }

    /// The sample that the words behind [`SAMPLE`] stand for; `None` for words that no sample has.
    pub(super) fn read(words: &[u64]) -> Option<Self> {
        let (&[model, estimated, prompt], cached) = words.split_first_chunk()?;
        let cached = match *cached {
            [] => None,
            [predicted, actual] => Some(CachedSample { predicted, actual }),
            _ => return None,
        };
        Some(Self { model, estimated, prompt, cached })
    }
}

/// Tokens of prompts by model.
#[derive(Debug, Default)]
pub(super) struct ModelTokens(HashMap<u64, TokenSums>);

/// Weighted sums over the prompts of a model.
#[derive(Clone, Copy, Debug, Default)]
struct TokenSums {
    estimated: f64,
    counted: f64,
    samples: u32,
    /// The time of the newest sample.
    at: Duration,
}

impl ModelTokens {
    /// Takes in the prompt of a response.
    pub(super) fn learn(&mut self, sample: &UsageSample, at: Duration) {
        let UsageSample { model, estimated, prompt, .. } = *sample;
        if !(MIN_TOKENS..=MAX_REQUEST_TOKENS).contains(&estimated) {
            return;
        }
        if self.0.len() >= MAX_MODELS && !self.0.contains_key(&model) {
            let oldest = self.0.iter().min_by_key(|(key, sums)| (sums.at, **key)).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let sums = self.0.entry(model).or_default();
        let estimated = estimated as f64;
        let counted = (prompt as f64).clamp(estimated / MAX_FACTOR, estimated * MAX_FACTOR);
        sums.estimated = sums.estimated * KEPT + estimated;
        sums.counted = sums.counted * KEPT + counted;
        sums.samples = sums.samples.saturating_add(1);
        sums.at = sums.at.max(at);
    }

    /// The tokens of a model; the estimate until some of its responses came.
    pub(super) fn scale(&self, model: &str) -> TokenScale {
        if self.0.is_empty() {
            return TokenScale::ONE;
        }
        let sums = self.0.get(&model_key(model)).filter(|sums| sums.samples >= MIN_SAMPLES);
        sums.map_or(TokenScale::ONE, |sums| TokenScale(sums.counted / sums.estimated))
    }
}

/// The share of an endpoint's capacity that its server really has room for, 1/16..=1.
///
/// A response with fewer cached tokens than predicted shows that the index is too large, one with more that
/// it is too small. Each sample changes the share by 15 % at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    share: f64,
    samples: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self { share: 1.0, samples: 0 }
    }
}

impl Share {
    /// Takes in the cached tokens of a response.
    pub(super) fn learn(&mut self, CachedSample { predicted, actual }: CachedSample) {
        if predicted == 0 && actual == 0 {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples < MIN_SAMPLES {
            return;
        }
        let (predicted, actual) = (predicted as f64, actual as f64);
        let wrong = (actual - predicted) / actual.max(predicted);
        self.share = (self.share * (1.0 + STEP * (wrong + REST))).clamp(MIN_SHARE, 1.0);
    }

    /// This share of a number of blocks, at least 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the capacity")]
    pub(super) fn of(self, capacity: usize) -> usize {
        ((capacity as f64 * self.share) as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::test;

    fn cached(predicted: u64, actual: u64) -> CachedSample {
        CachedSample { predicted, actual }
    }

    #[test]
    fn samples_are_read_as_they_were_written() {
        for cached in [Some(cached(640, 0)), Some(cached(640, u64::MAX)), None] {
            let sample = UsageSample { model: 7, estimated: 1_000, prompt: 1_500, cached };
            let words = sample.words();
            let (marker, words) = words.split_first().unwrap();
            assert_eq!((*marker, UsageSample::read(words)), (SAMPLE, Some(sample)));
        }
        for words in [&[][..], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6]] {
            assert_eq!(UsageSample::read(words), None);
        }
    }

    /// Example of `approx-prefix-cache-producer`.
    #[test]
    fn bytes_per_token_are_learnt_by_model_from_eight_prompts_on() {
        let mut models = ModelTokens::default();
        let at = Duration::from_secs(1);
        let sample = |model: &str, estimated, prompt| UsageSample {
            model: model_key(model),
            estimated,
            prompt,
            cached: None,
        };
        for samples in 1..=20 {
            assert_eq!(models.scale("code").tokens(1_000), if samples > 8 { 1_300 } else { 1_000 });
            models.learn(&sample("code", 200, 260), at);
            models.learn(&sample("short", 63, 260), at);
            models.learn(&sample("hostile", 100, u64::MAX), at);
        }
        assert_eq!(models.scale("short"), TokenScale::ONE, "most of its tokens may be a template's");
        assert_eq!(models.scale("unknown"), TokenScale::ONE);
        assert_eq!(models.scale("hostile").tokens(100), 400);
        models.learn(&sample("code", 200, u64::MAX), at);
        assert!(models.scale("code").tokens(1_000) < 1_500, "one response changes little");
    }

    #[test]
    fn the_model_that_was_not_used_for_longest_gives_its_place() {
        let mut models = ModelTokens::default();
        for second in 0..1_000 {
            for model in [0, second] {
                let sample = UsageSample { model, estimated: 100, prompt: 100, cached: None };
                models.learn(&sample, Duration::from_secs(second));
            }
        }
        assert_eq!(models.0.len(), MAX_MODELS);
        assert!(models.0.contains_key(&0) && models.0.contains_key(&999) && !models.0.contains_key(&500));
    }

    #[test]
    fn the_share_follows_the_truth_both_ways() {
        let mut share = Share::default();
        for _ in 1..MIN_SAMPLES {
            share.learn(cached(640, 0));
            share.learn(cached(0, 0));
        }
        assert_eq!(share.of(1_000), 1_000, "too few samples");
        share.learn(cached(640, 0));
        assert_eq!(share.of(1_000), 900);
        share.learn(cached(640, 320));
        assert_eq!(share.of(1_000), 866);
        share.learn(cached(640, 640));
        assert_eq!(share.of(1_000), 887);
        share.learn(cached(320, 640));
        assert_eq!(share.of(1_000), 965);
        share.learn(cached(640, 512));
        assert_eq!(share.of(1_000), 965, "a fifth is missing");
        for _ in 0..100 {
            share.learn(cached(640, 0));
        }
        assert_eq!((share.of(1_600), share.of(1)), (100, 1), "a sixteenth at least");
        for _ in 0..100 {
            share.learn(cached(0, 640));
        }
        assert_eq!(share.of(1_000), 1_000, "never more than the capacity");
    }

    proptest! {
        #[test]
        fn whatever_the_samples_all_is_bounded(samples in vec(any::<(u64, u64, u64, u64)>(), 0..99)) {
            let (mut share, mut models) = (Share::default(), ModelTokens::default());
            for (estimated, prompt, predicted, actual) in samples {
                share.learn(cached(predicted, actual));
                let sample = UsageSample { model: model_key("m"), estimated, prompt, cached: None };
                models.learn(&sample, Duration::ZERO);
                prop_assert!((62..=1_000).contains(&share.of(1_000)));
                prop_assert!((250..=4_000).contains(&models.scale("m").tokens(1_000)));
            }
        }
    }
}
