//! The load that a request adds to endpoints.

use crate::epp_rules::EppRules;
use crate::pool::load::{Load, Reservation};
use crate::request::Request;
use crate::state::prefix::PrefixMatch;

/// Estimates the load that a request adds to an endpoint, by the parameters of `inflight-load-producer`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadEstimator {
    /// The prefix producer whose matches are not counted.
    pub(crate) prefix_producer: String,
    /// Tokens of the response; `None`: not counted.
    pub(crate) output: Option<OutputEstimate>,
}

/// Tokens of a response: the least of `rule`'s, the client's limit and `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutputEstimate {
    pub(crate) rule: OutputRule,
    /// Maximum number of tokens of a response that are counted.
    pub(crate) max: u64,
}

/// The tokens of a response without a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OutputRule {
    /// Tokens of the response for one of the prompt, 0 or more. Tokens that the prompt only claims do not
    /// count.
    Ratio(f64),
    /// As many for each request, by the EPP's rules since v0.11 (#2309). A client's limit of 0 is none.
    Constant,
}

/// The EPP's number for a response about whose length nothing is known.
const UNKNOWN_LENGTH: u64 = 1_000;

impl LoadEstimator {
    /// The same estimator, by these rules.
    #[must_use]
    pub(crate) fn by(self, rules: EppRules) -> Self {
        let constant = |output| OutputEstimate { rule: OutputRule::Constant, ..output };
        Self { output: if rules.is_v011() { self.output.map(constant) } else { self.output }, ..self }
    }

    /// Tokens that the request adds to the endpoint's load, at most `max`: its
    /// [missing](PrefixMatch::missing_tokens) tokens without those that it only claims, and the response's.
    pub(crate) fn tokens(
        &self,
        request: &Request<'_>,
        prefix: &PrefixMatch,
        endpoint: usize,
        max: u64,
    ) -> u64 {
        let (input, carried) = (request.input_tokens(), request.carried_tokens());
        let missing = prefix.missing_carried_tokens(input, carried, endpoint);
        let output = self.output.map_or(0, |output| output.tokens(request));
        missing.saturating_add(output).min(max)
    }

    /// The reservation on the endpoint of a stage; a prefill stage ends when the response begins.
    pub(crate) fn reservation(&self, endpoint: usize, tokens: u64, is_prefill: bool) -> Reservation {
        let all = Load { requests: 1, tokens };
        let (prefill, response) = if is_prefill {
            (all, Load::default())
        } else if self.output.is_some() {
            (Load::default(), all)
        } else {
            (Load { requests: 0, tokens }, Load { requests: 1, tokens: 0 })
        };
        Reservation { endpoint, prefill, response }
    }
}

impl OutputEstimate {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, which is the intent"
    )]
    fn tokens(self, request: &Request<'_>) -> u64 {
        let limit = request.max_output_tokens;
        let (estimate, limit) = match self.rule {
            OutputRule::Ratio(ratio) => ((request.carried_tokens() as f64 * ratio).round() as u64, limit),
            OutputRule::Constant => (UNKNOWN_LENGTH, limit.filter(|limit| *limit > 0)),
        };
        estimate.min(limit.unwrap_or(u64::MAX)).min(self.max)
    }
}
