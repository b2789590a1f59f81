//! Predicted latencies of a request, and the limits that its client has for them.

use core::fmt;
use core::time::Duration;

use crate::headers::Headers;
use crate::state::latency::CompleteResponse;

/// The limit of the time to the first token in milliseconds, and its older spelling.
pub(crate) const TTFT_LIMIT: [&str; 2] = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];

/// The limit of the time for each further token in milliseconds, and its older spelling.
const TPOT_LIMIT: [&str; 2] = ["x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"];

/// Maximum of a limit in milliseconds, eleven days; a longer limit counts as the maximum.
const MAX_LIMIT: f64 = 1e9;

/// The limits that a client has for the latency of its request, in milliseconds; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyLimits {
    /// The limit of the time to the first token.
    pub ttft: f64,
    /// The limit of the time of each further token.
    pub tpot: f64,
}

impl LatencyLimits {
    /// Reads the limits from the headers of a request. A header whose value is not a number above 0 is
    /// ignored.
    pub fn read(headers: Headers<'_>) -> Self {
        let limit = |names| {
            let number = headers.get_either(names).and_then(|text| text.parse::<f64>().ok());
            number.filter(|limit| *limit > 0.0).map_or(0.0, |limit| limit.min(MAX_LIMIT))
        };
        Self { ttft: limit(TTFT_LIMIT), tpot: limit(TPOT_LIMIT) }
    }

    /// Whether the client has a limit.
    pub fn is_any(&self) -> bool {
        self.ttft > 0.0 || self.tpot > 0.0
    }

    /// Whether a time to the first token keeps the limit for it; `None` without a limit.
    pub fn keeps_ttft(&self, milliseconds: f64) -> Option<bool> {
        (self.ttft > 0.0).then_some(milliseconds < self.ttft)
    }

    /// Whether a time for each further token keeps the limit for it; `None` without a limit.
    pub fn keeps_tpot(&self, milliseconds: f64) -> Option<bool> {
        (self.tpot > 0.0).then_some(milliseconds < self.tpot)
    }
}

/// The limits that the response to a request has to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseLimits {
    /// The client's limits.
    pub limits: LatencyLimits,
    /// Whether the time to the end of the response has to keep the limit for the first token, and tokens have
    /// none.
    pub is_whole: bool,
}

impl ResponseLimits {
    /// Whether a first output that came this long after the decision keeps its limit; `None`: there is no
    /// limit for the first output.
    pub fn keeps_first_chunk(&self, took: Duration) -> Option<bool> {
        if self.is_whole { None } else { self.limits.keeps_ttft(took.as_secs_f64() * 1e3) }
    }

    /// Whether a complete response keeps the limit for its end; `None`: there is no limit for its end.
    pub fn keeps_end(&self, response: &CompleteResponse) -> Option<bool> {
        if self.is_whole { self.limits.keeps_ttft(response.whole.as_secs_f64() * 1e3) } else { None }
    }

    /// Whether the tokens after the first one of a complete response keep their limit; `None`: they have no
    /// limit, or the response is not a stream of several tokens.
    pub fn keeps_tokens(&self, response: &CompleteResponse) -> Option<bool> {
        if self.is_whole { None } else { self.limits.keeps_tpot(response.token_milliseconds()?) }
    }
}

/// The predicted latency of a request at one endpoint, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Time to the first token, or to the end of the response.
    pub ttft: f64,
    /// Time of each further token.
    pub tpot: f64,
    /// The limit of the time to the first token minus `ttft`; a missing limit counts as 0.
    pub ttft_headroom: f64,
    /// The limit of the time of each further token minus `tpot`, in the same way; 0 where `tpot` is not
    /// predicted.
    pub tpot_headroom: f64,
    /// Whether each limit that the client has would be kept.
    pub is_valid: bool,
}

impl Prediction {
    /// Whether both headrooms are 0 or more.
    pub(crate) fn is_positive(&self) -> bool {
        self.ttft_headroom >= 0.0 && self.tpot_headroom >= 0.0
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ttft, tpot, ttft_headroom, tpot_headroom, .. } = self;
        write!(
            f,
            "ttft {ttft:.1} ms, headroom {ttft_headroom:.1}, tpot {tpot:.1} ms, headroom {tpot_headroom:.1}"
        )
    }
}

/// The predictions of one producer for a request.
#[derive(Clone, Debug)]
pub(crate) struct Predictions<'a> {
    /// The producer's name in the configuration.
    pub(crate) producer: &'a str,
    /// The prediction for each endpoint by its index in the pool; `None` for endpoints that are not
    /// candidates.
    pub(crate) by_endpoint: Vec<Option<Prediction>>,
}

impl Predictions<'_> {
    /// The prediction for a candidate.
    pub(crate) fn at(&self, endpoint: usize) -> Option<&Prediction> {
        self.by_endpoint.get(endpoint)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::headers;
    use crate::test;

    #[test]
    fn limits_are_numbers_above_zero_under_the_new_or_the_older_name() {
        let limits = |all: &[(&str, &str)]| {
            let LatencyLimits { ttft, tpot } = LatencyLimits::read(headers(all));
            (ttft, tpot)
        };
        assert_eq!(limits(&[]), (0.0, 0.0));
        assert_eq!(limits(&[("x-llm-d-slo-ttft-ms", "250"), ("x-slo-ttft-ms", "9")]), (250.0, 0.0));
        assert_eq!(limits(&[("x-slo-ttft-ms", "1.5e2"), ("X-SLO-TPOT-MS", "20.5")]), (150.0, 20.5));
        assert_eq!(limits(&[("x-llm-d-slo-tpot-ms", "+Inf")]), (0.0, MAX_LIMIT));
        for text in ["0", "-3", "NaN", "fast", "1 0", "1_0", "-inf", "0x10"] {
            assert_eq!(limits(&[("x-llm-d-slo-ttft-ms", text)]), (0.0, 0.0), "{text}");
        }
    }

    #[test]
    fn a_limit_is_kept_below_it_and_none_is_neither_kept_nor_missed() {
        let limits = LatencyLimits { ttft: 100.0, tpot: 0.0 };
        assert_eq!([99.9, 100.0].map(|time| limits.keeps_ttft(time)), [Some(true), Some(false)]);
        assert_eq!(limits.keeps_tpot(1.0), None);
        assert!(limits.is_any() && !LatencyLimits::default().is_any());
    }
}
