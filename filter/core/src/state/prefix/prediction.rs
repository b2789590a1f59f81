//! The cached tokens of a prompt: as they are predicted, and as the response shows them.

use core::time::Duration;

use super::usage::{CachedSample, UsageSample};
use crate::response::usage::Usage;
use crate::state::StateChange;

/// The usage of a request as the index predicts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsagePrediction {
    /// The plugin's [key](crate::plugin::Instance::key).
    pub(crate) plugin: u64,
    /// The endpoint's [key](crate::pool::Endpoint::key).
    pub(crate) endpoint: u64,
    /// The [key](super::model_key) of the model.
    pub(crate) model: u64,
    /// Tokens of the prompt, estimated.
    pub(crate) estimated: u64,
    /// Estimated tokens of it that the endpoint was sent before.
    pub(crate) matched: u64,
    /// Tokens of it that the endpoint has cached, where its events show them.
    pub(crate) cached: Option<u64>,
    /// Estimated tokens of a block.
    pub(crate) block: u64,
    /// Whether the plugin learns from the response.
    pub(crate) is_learning: bool,
}

/// The tokens of a prompt that its server had cached, next to the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedTokens {
    /// The source of the prediction.
    pub source: PredictionSource,
    /// Tokens that the endpoint was predicted to have cached.
    pub predicted: u64,
    /// Tokens that it had cached.
    pub actual: u64,
    /// Tokens of a block. The index has whole blocks, so a prediction that is off by one block is right.
    pub block: u64,
}

/// The source of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictionSource {
    /// The events of the endpoint's KV cache.
    Events,
    /// The prompts that the endpoint was sent.
    Prompts,
}

impl PredictionSource {
    /// All sources.
    pub const ALL: [Self; 2] = [Self::Events, Self::Prompts];

    /// As in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Prompts => "prompts",
        }
    }
}

impl CachedTokens {
    /// The difference of prediction and truth, in tokens.
    pub fn error(&self) -> u64 {
        self.actual.abs_diff(self.predicted)
    }

    /// Whether the prediction is off by more than a block.
    pub fn is_wrong(&self) -> bool {
        self.error() > self.block
    }

    /// Tokens that the endpoint had cached, in blocks of the index: those predicted, unless the prediction is
    /// wrong.
    pub fn actual_in_blocks(&self) -> u64 {
        if self.is_wrong() { self.actual } else { self.predicted }
    }
}

impl UsagePrediction {
    /// The key of the endpoint that the request was sent to.
    pub fn endpoint(&self) -> u64 {
        self.endpoint
    }

    /// Whether the plugin learns from the response.
    pub fn is_learning(&self) -> bool {
        self.is_learning
    }

    /// The prediction and the truth, in tokens as the server counts them; `None` if the usage has no such
    /// numbers.
    pub fn cached_tokens(&self, usage: &Usage) -> Option<CachedTokens> {
        let prompt = usage.prompt();
        // Of the request itself, so that no mean is needed.
        let counted = |estimated: u64| {
            let tokens = u128::from(estimated) * u128::from(prompt) / u128::from(self.estimated.max(1));
            u64::try_from(tokens).unwrap_or(u64::MAX)
        };
        let actual = usage.cached.filter(|_| prompt > 0 && self.estimated > 0)?.min(prompt);
        let (source, predicted) = match self.cached {
            Some(tokens) => (PredictionSource::Events, tokens),
            None => (PredictionSource::Prompts, counted(self.matched)),
        };
        Some(CachedTokens { source, predicted: predicted.min(prompt), actual, block: counted(self.block) })
    }

    /// The change by which the index learns from this usage and its [cached tokens](Self::cached_tokens);
    /// `None` if it learns nothing.
    pub fn sample(&self, usage: &Usage, cached: Option<CachedTokens>, at: Duration) -> Option<StateChange> {
        let (model, estimated, prompt) = (self.model, self.estimated, usage.prompt());
        let cached = cached
            .map(|tokens| CachedSample { predicted: tokens.predicted, actual: tokens.actual_in_blocks() });
        let is_sample = self.is_learning && estimated > 0 && prompt > 0;
        is_sample.then(|| StateChange {
            plugin: self.plugin,
            endpoint: self.endpoint,
            at,
            words: UsageSample { model, estimated, prompt, cached }.words(),
        })
    }
}

/// Upper bounds of errors in tokens by which predictions are counted.
pub const ERROR_BOUNDS: [u64; 6] = [0, 16, 64, 256, 1024, 4096];

/// Predictions of cached tokens by their error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictionErrors {
    counts: [u64; ERROR_BOUNDS.len() + 1],
    tokens: u64,
    wrong: u64,
}

impl PredictionErrors {
    /// Counts a response.
    pub fn add(&mut self, cached: &CachedTokens) {
        let error = cached.error();
        if let Some(count) = self.counts.get_mut(ERROR_BOUNDS.partition_point(|bound| *bound < error)) {
            *count += 1;
        }
        self.tokens = self.tokens.saturating_add(error);
        self.wrong += u64::from(cached.is_wrong());
    }

    /// Responses by their error: up to each of [`ERROR_BOUNDS`] and above the bound before, and last those
    /// above all. Zeros at the end are left out.
    pub fn used_counts(&self) -> &[u64] {
        let used = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        self.counts.get(..used).unwrap_or_default()
    }

    /// The sum of the errors, in tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Responses whose prediction was [wrong](CachedTokens::is_wrong).
    pub fn wrong(&self) -> u64 {
        self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::prefix::model_key;
    use crate::test;

    fn usage(input: u64, cached: Option<u64>) -> Usage {
        Usage { input, cached, ..Usage::default() }
    }

    /// A prompt of 1000 estimated tokens, 640 of which the endpoint was sent before.
    fn prediction() -> UsagePrediction {
        UsagePrediction {
            plugin: 1,
            endpoint: 2,
            model: model_key("m"),
            estimated: 1_000,
            matched: 640,
            cached: None,
            block: 64,
            is_learning: true,
        }
    }

    /// Predicted and cached tokens, and whether the prediction is wrong.
    fn compare(prediction: UsagePrediction, input: u64, cached: Option<u64>) -> Option<(u64, u64, bool)> {
        let tokens = prediction.cached_tokens(&usage(input, cached))?;
        Some((tokens.predicted, tokens.actual, tokens.is_wrong()))
    }

    #[test]
    fn the_prediction_is_compared_in_tokens_of_the_server() {
        let compare = |input, cached| compare(prediction(), input, cached);
        assert_eq!(compare(1_000, Some(0)), Some((640, 0, true)));
        assert_eq!(compare(1_500, Some(960)), Some((960, 960, false)));
        assert_eq!(compare(1_500, Some(96)), Some((960, 96, true)), "12 bytes for 3 tokens each");
        assert_eq!(compare(1_000, Some(704)), Some((640, 704, false)), "a block more");
        assert_eq!(compare(1_000, Some(705)), Some((640, 705, true)));
        assert_eq!(compare(1_000, Some(576)), Some((640, 576, false)), "a block less");
        assert_eq!(compare(1_000, Some(u64::MAX)), Some((640, 1_000, true)), "not more than the prompt");
        assert_eq!(compare(1_000, None), None, "the server does not report them");
        assert_eq!(compare(0, Some(7)), None, "the usage has no prompt");
        let without_prompt = UsagePrediction { estimated: 0, matched: 0, ..prediction() };
        assert_eq!(without_prompt.cached_tokens(&usage(9, Some(9))), None);
    }

    #[test]
    fn tokens_that_events_show_are_predicted_as_they_are() {
        let compare = |tokens, cached| {
            compare(UsagePrediction { cached: Some(tokens), ..prediction() }, 2_000, Some(cached))
        };
        assert_eq!(compare(192, 64), Some((192, 64, false)), "a block of 64 has 128 tokens here");
        assert_eq!(compare(193, 64), Some((193, 64, true)));
        assert_eq!(compare(u64::MAX, 64), Some((2_000, 64, true)));
    }

    #[test]
    fn a_prediction_by_events_and_one_by_prompts_have_their_source() {
        let source = |cached| {
            let prediction = UsagePrediction { cached, ..prediction() };
            prediction.cached_tokens(&usage(1_000, Some(0))).unwrap().source
        };
        assert_eq!([Some(0), None].map(source), PredictionSource::ALL);
    }

    #[test]
    fn the_index_learns_no_error_of_a_block() {
        let at = Duration::from_secs(1);
        for (cached, learnt) in [(Some(0), Some((640, 0))), (Some(700), Some((640, 640))), (None, None)] {
            let (prediction, usage) = (prediction(), usage(1_000, cached));
            let change = prediction.sample(&usage, prediction.cached_tokens(&usage), at).unwrap();
            assert_eq!((change.plugin, change.endpoint, change.at), (1, 2, at));
            let cached = learnt.map(|(predicted, actual)| CachedSample { predicted, actual });
            let sample = UsageSample { model: model_key("m"), estimated: 1_000, prompt: 1_000, cached };
            assert_eq!(change.words, sample.words());
        }
        let not_learning = UsagePrediction { is_learning: false, ..prediction() };
        assert_eq!(not_learning.sample(&usage(9, None), None, at), None);
        assert_eq!(prediction().sample(&usage(0, Some(9)), None, at), None);
    }

    #[test]
    fn an_error_counts_below_the_first_bound_that_it_does_not_exceed() {
        let mut errors = PredictionErrors::default();
        assert_eq!(errors.used_counts(), [0; 0]);
        for actual in [1_000, 984, 983, 0] {
            let source = PredictionSource::Events;
            errors.add(&CachedTokens { source, predicted: 1_000, actual, block: 16 });
        }
        assert_eq!(errors.used_counts(), [1, 1, 1, 0, 1]);
        assert_eq!((errors.tokens(), errors.wrong()), (16 + 17 + 1_000, 2));
        errors.add(&CachedTokens {
            source: PredictionSource::Prompts,
            predicted: u64::MAX,
            actual: 0,
            block: 16,
        });
        assert_eq!((errors.used_counts().last(), errors.tokens()), (Some(&1), u64::MAX));
        assert_eq!(errors.used_counts().len(), ERROR_BOUNDS.len() + 1);
    }
}
