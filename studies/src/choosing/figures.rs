//! Measurements of a run.

use metrics_agent_replay::simulation::figures::percentile;
use std::time::Duration;

/// One measured request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// From sending it to the first byte of the response's body.
    pub(super) first_token: Duration,
    /// From there to the end of the response.
    pub(super) rest: Duration,
    /// Tokens of the response.
    pub(super) tokens: u64,
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFigures {
    /// Shortest first.
    first_token: Vec<Duration>,
    /// Mean times for a token after the first one, of responses with more than one, shortest first.
    token: Vec<Duration>,
    /// Measured requests that the picker refused, because their limit would not be kept.
    pub(crate) refused: usize,
    /// Measured requests that were not served.
    pub(crate) failures: Vec<String>,
    /// Share of the prompt tokens that the servers had cached.
    pub(crate) cached: f64,
    /// Requests of the server with the maximum, as a multiple of the mean.
    pub(crate) busiest: f64,
    /// Times to the first chunk as percentages of what the picker expected, the quartiles, if it expects any.
    pub(crate) of_expected: Option<[f64; 3]>,
    /// Cores in use by servers, clients, proxy and picker.
    pub(crate) cores: f64,
    /// How long requests were measured.
    pub(crate) lasting: Duration,
}

impl RunFigures {
    pub(super) fn add(&mut self, served: &Served) {
        self.first_token.push(served.first_token);
        if let Some(others) = served.tokens.checked_sub(1).filter(|others| *others > 0) {
            self.token.push(served.rest / u32::try_from(others).unwrap_or(u32::MAX));
        }
    }

    pub(super) fn sort(&mut self) {
        self.first_token.sort_unstable();
        self.token.sort_unstable();
    }

    /// Milliseconds within which this share of the first tokens came.
    pub(crate) fn first_token(&self, share: f64) -> f64 {
        percentile(&self.first_token, share).as_secs_f64() * 1e3
    }

    /// Mean milliseconds for a token after the first one.
    pub(crate) fn token(&self) -> f64 {
        self.token.iter().sum::<Duration>().as_secs_f64() * 1e3 / self.token.len().max(1) as f64
    }

    /// Requests served each second.
    pub(crate) fn per_second(&self) -> f64 {
        self.first_token.len() as f64 / self.lasting.as_secs_f64()
    }

    /// Percentage of the requests that were refused.
    pub(crate) fn refused(&self) -> f64 {
        self.refused as f64 * 100.0 / (self.refused + self.first_token.len()).max(1) as f64
    }

    /// Percentage of the served requests whose first token came within this time.
    pub(crate) fn kept(&self, limit: Duration) -> f64 {
        let kept = self.first_token.partition_point(|first_token| *first_token <= limit);
        kept as f64 * 100.0 / self.first_token.len().max(1) as f64
    }

    /// Number of requests that were served.
    pub(crate) fn served(&self) -> usize {
        self.first_token.len()
    }
}
