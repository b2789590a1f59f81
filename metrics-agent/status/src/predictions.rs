//! Predictions of cached tokens, and the truth by responses.

use endpoint_picker::state::prefix::{ERROR_BOUNDS, PredictionSource};
use endpoint_picker_wire::report as wire;
use serde::{Deserialize, Serialize};

use crate::report::ReportError;

/// Errors up to each of [`ERROR_BOUNDS`], and errors above the last.
const BUCKETS: usize = ERROR_BOUNDS.len() + 1;

/// Tokens of prompts that an endpoint had cached, next to those predicted, of responses that report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CachePredictions {
    /// Tokens that the endpoint was predicted to have cached.
    pub predicted_cached_tokens: u64,
    /// Tokens that it had cached. An error of at most a block is none.
    pub cached_tokens: u64,
    /// Predictions by the events of its KV cache.
    #[serde(skip)]
    pub by_events: PredictionErrors,
    /// Predictions by the prompts that it was sent.
    #[serde(skip)]
    pub by_prompts: PredictionErrors,
}

/// Predictions of one source by their error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictionErrors {
    counts: [u64; BUCKETS],
    tokens: u64,
    wrong: u64,
}

impl CachePredictions {
    /// Reads the predictions of a report.
    pub fn read(entry: &wire::EndpointReport) -> Result<Self, ReportError> {
        let errors = |reported: &Option<wire::PredictionErrors>| {
            reported.as_ref().map_or(Ok(PredictionErrors::default()), PredictionErrors::read)
        };
        Ok(Self {
            predicted_cached_tokens: entry.predicted_cached_tokens,
            cached_tokens: entry.cached_tokens,
            by_events: errors(&entry.errors_by_events)?,
            by_prompts: errors(&entry.errors_by_prompts)?,
        })
    }

    /// The predictions of each source.
    pub fn by_source(&self) -> [(PredictionSource, &PredictionErrors); 2] {
        [(PredictionSource::Events, &self.by_events), (PredictionSource::Prompts, &self.by_prompts)]
    }

    /// These predictions without those of an earlier report.
    #[must_use]
    pub fn without(&self, earlier: &Self) -> Self {
        Self {
            predicted_cached_tokens: self
                .predicted_cached_tokens
                .saturating_sub(earlier.predicted_cached_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(earlier.cached_tokens),
            by_events: self.by_events.without(&earlier.by_events),
            by_prompts: self.by_prompts.without(&earlier.by_prompts),
        }
    }

    /// Adds more predictions.
    pub fn add(&mut self, more: &Self) {
        self.predicted_cached_tokens =
            self.predicted_cached_tokens.saturating_add(more.predicted_cached_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(more.cached_tokens);
        self.by_events.add(&more.by_events);
        self.by_prompts.add(&more.by_prompts);
    }
}

impl PredictionErrors {
    /// Reads reported errors. The number of responses fits into 64 bits.
    fn read(reported: &wire::PredictionErrors) -> Result<Self, ReportError> {
        let wire::PredictionErrors { counts: reported, tokens, wrong } = reported;
        let mut counts = [0; BUCKETS];
        let responses = reported.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
        if reported.len() > BUCKETS || responses.is_none_or(|responses| *wrong > responses) {
            return Err(ReportError::InvalidErrors);
        }
        counts.iter_mut().zip(reported).for_each(|(own, count)| *own = *count);
        Ok(Self { counts, tokens: *tokens, wrong: *wrong })
    }

    /// Responses whose prediction is known.
    pub fn responses(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Responses with an error of more than a block.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// The sum of the errors, in tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Upper bounds in tokens, the last infinite, each with the number of errors up to it and above the bound
    /// before.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = ERROR_BOUNDS.iter().map(|&bound| bound as f64).chain([f64::INFINITY]);
        bounds.zip(self.counts).collect()
    }

    /// The median of the errors in tokens; between two bounds it is estimated as in Prometheus. At most the
    /// last bound. `None` without errors.
    pub fn median(&self) -> Option<f64> {
        let rank = self.responses() as f64 / 2.0;
        if rank == 0.0 {
            return None;
        }
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, count) in ERROR_BOUNDS.iter().zip(self.counts) {
            let (count, upper) = (count as f64, *bound as f64);
            if count > 0.0 && below + count >= rank {
                return Some(lower + (upper - lower) * ((rank - below) / count));
            }
            (below, lower) = (below + count, upper);
        }
        Some(lower)
    }

    #[must_use]
    fn without(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        counts.iter_mut().zip(earlier.counts).for_each(|(own, count)| *own = own.saturating_sub(count));
        Self {
            counts,
            tokens: self.tokens.saturating_sub(earlier.tokens),
            wrong: self.wrong.saturating_sub(earlier.wrong),
        }
    }

    /// Adds more predictions.
    pub fn add(&mut self, more: &Self) {
        let counts = self.counts.iter_mut().zip(more.counts);
        counts.for_each(|(own, count)| *own = own.saturating_add(count));
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.wrong = self.wrong.saturating_add(more.wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(counts: &[u64], wrong: u64) -> PredictionErrors {
        let reported = wire::PredictionErrors { counts: counts.to_vec(), tokens: 10, wrong };
        PredictionErrors::read(&reported).unwrap()
    }

    #[test]
    fn the_median_lies_between_the_bounds_of_its_bucket() {
        assert_eq!(errors(&[], 0).median(), None);
        assert_eq!(errors(&[3, 2], 0).median(), Some(0.0), "most are exact");
        assert_eq!(errors(&[1, 4], 0).median(), Some(6.0));
        assert_eq!(errors(&[0, 0, 0, 2], 0).median(), Some(160.0));
        assert_eq!(errors(&[1, 0, 0, 0, 0, 0, 9], 9).median(), Some(4_096.0), "the last bound");
    }

    #[test]
    fn predictions_are_added_and_taken_away_by_source() {
        let of = |tokens, by_events, by_prompts| CachePredictions {
            predicted_cached_tokens: 2 * tokens,
            cached_tokens: tokens,
            by_events,
            by_prompts,
        };
        let mut sum = of(100, errors(&[1], 0), errors(&[0, 1], 1));
        sum.add(&of(50, errors(&[1, 2], 3), PredictionErrors::default()));
        assert_eq!((sum.predicted_cached_tokens, sum.cached_tokens), (300, 150));
        let figures = |errors: &PredictionErrors| (errors.responses(), errors.wrong(), errors.tokens());
        assert_eq!(sum.by_source().map(|(_, errors)| figures(errors)), [(4, 3, 20), (1, 1, 10)]);
        assert_eq!(sum.by_source().map(|(source, _)| source), PredictionSource::ALL);
        let rest = sum.without(&of(100, errors(&[1], 0), errors(&[0, 1], 1)));
        assert_eq!(rest.by_events.buckets()[..3], [(0.0, 1), (16.0, 2), (64.0, 0)]);
        assert_eq!((rest.cached_tokens, figures(&rest.by_prompts)), (50, (0, 0, 0)));
    }

    #[test]
    fn errors_that_cannot_be_are_refused() {
        let read = |counts, wrong| {
            let errors = wire::PredictionErrors { counts, tokens: u64::MAX, wrong };
            let entry = wire::EndpointReport { errors_by_prompts: Some(errors), ..Default::default() };
            CachePredictions::read(&entry).map(|it| it.by_prompts.responses())
        };
        assert_eq!(read(vec![u64::MAX], 7), Ok(u64::MAX));
        for (counts, wrong) in [(vec![u64::MAX, 1], 0), (vec![0; 8], 0), (vec![1, 2], 4)] {
            assert_eq!(read(counts, wrong), Err(ReportError::InvalidErrors));
        }
    }
}
