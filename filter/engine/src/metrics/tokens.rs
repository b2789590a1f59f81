//! Metrics of the tokens that responses report.

use core::time::Duration;

use endpoint_picker::response::usage::Usage;
use endpoint_picker::state::prefix::CachedTokens;
use endpoint_picker_wire::statistics::{
    CACHED_TOKENS, CACHED_TOKENS_TOTAL, INPUT_TOKENS, INPUT_TOKENS_TOTAL, OUTPUT_TOKENS, OUTPUT_TOKENS_TOTAL,
    PREDICTION_ERRORS, Statistic, TIME_PER_FURTHER_TOKEN, TIME_PER_TOKEN, WRONG_PREDICTIONS,
};

use super::series::{LabelledCounter, LabelledHistogram};
use super::sink::{Labels, MetricSink, PoolSink};

/// Metrics of the tokens that responses report, by the client's model and the serving model.
#[derive(Debug)]
pub(crate) struct TokenMetrics<M: MetricSink> {
    input: Amounts<M>,
    output: Amounts<M>,
    cached: Amounts<M>,
    time_per_token: LabelledHistogram<M>,
    time_per_further_token: LabelledHistogram<M>,
    prediction_errors: LabelledHistogram<M>,
    wrong_predictions: LabelledCounter<M>,
}

/// A histogram and its sum. The sum that Envoy derives from its histogram can be off by 5 %.
#[derive(Debug)]
struct Amounts<M: MetricSink> {
    each: LabelledHistogram<M>,
    total: LabelledCounter<M>,
}

/// The usage of a complete response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseUsage {
    pub(crate) usage: Usage,
    /// Time from the choice of the endpoint to the end of the response.
    pub(crate) whole: Duration,
    /// Time from the response's first byte to its end, if it was streamed.
    pub(crate) since_first: Option<Duration>,
}

impl<M: MetricSink> TokenMetrics<M> {
    pub(crate) fn new(sink: &PoolSink<'_, M>) -> Self {
        let amounts = |each: &'static Statistic, total: &'static Statistic| Amounts {
            each: LabelledHistogram::new(sink, each),
            total: LabelledCounter::new(sink, total),
        };
        Self {
            input: amounts(&INPUT_TOKENS, &INPUT_TOKENS_TOTAL),
            output: amounts(&OUTPUT_TOKENS, &OUTPUT_TOKENS_TOTAL),
            cached: amounts(&CACHED_TOKENS, &CACHED_TOKENS_TOTAL),
            time_per_token: LabelledHistogram::new(sink, &TIME_PER_TOKEN),
            time_per_further_token: LabelledHistogram::new(sink, &TIME_PER_FURTHER_TOKEN),
            prediction_errors: LabelledHistogram::new(sink, &PREDICTION_ERRORS),
            wrong_predictions: LabelledCounter::new(sink, &WRONG_PREDICTIONS),
        }
    }

    pub(crate) fn count(&mut self, models: &Labels, response: &ResponseUsage) {
        let ResponseUsage { usage, whole, since_first } = response;
        for (amounts, count) in [
            (&mut self.input, Some(usage.input).filter(|&input| input > 0)),
            (&mut self.output, Some(usage.output).filter(|&output| output > 0)),
            (&mut self.cached, usage.cached),
        ] {
            if let Some(count) = count {
                amounts.each.record(models, count.into());
                amounts.total.add(models, count);
            }
        }
        if let Some(time) = usage.time_per_token(*whole) {
            self.time_per_token.record(models, time.as_micros());
        }
        if let Some(time) = since_first.and_then(|time| usage.time_per_further_token(time)) {
            self.time_per_further_token.record(models, time.as_micros());
        }
    }

    /// Counts a response whose cached tokens were predicted.
    pub(crate) fn count_prediction(&mut self, models: &Labels, cached: &CachedTokens) {
        let labels = models.with(cached.source.as_str());
        self.prediction_errors.record(&labels, cached.error().into());
        self.wrong_predictions.add(&labels, u64::from(cached.is_wrong()));
    }

    /// Forgets models that no response used for [some calls](LabelledCounter::age).
    pub(crate) fn age(&mut self) {
        for amounts in [&mut self.input, &mut self.output, &mut self.cached] {
            amounts.each.age();
            amounts.total.age();
        }
        for histogram in
            [&mut self.time_per_token, &mut self.time_per_further_token, &mut self.prediction_errors]
        {
            histogram.age();
        }
        self.wrong_predictions.age();
    }

    /// Adds the pending counts to the proxy's counters.
    pub(crate) fn flush(&self) {
        for amounts in [&self.input, &self.output, &self.cached] {
            amounts.total.flush();
        }
        self.wrong_predictions.flush();
    }
}
