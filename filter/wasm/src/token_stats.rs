//! The statistics of what answers say about tokens.

use core::time::Duration;

use endpoint_picker::usage::Usage;

use crate::labels::{LabelledCounter, LabelledHistogram, Labels};

/// What answers say about tokens, by the client's model and the one that serves.
#[derive(Debug)]
pub(crate) struct TokenStats {
    input: Amounts,
    output: Amounts,
    cached: Amounts,
    /// Microseconds for each token of an answer.
    time_per_token: LabelledHistogram,
    /// Microseconds for each token of a streamed answer after the first.
    time_per_further_token: LabelledHistogram,
}

/// Amounts, and all of them together: the sum that Envoy tells of a histogram is a twentieth off at times.
#[derive(Debug)]
struct Amounts {
    each: LabelledHistogram,
    total: LabelledCounter,
}

/// An answer that has come whole.
#[derive(Debug)]
pub(crate) struct WholeAnswer {
    pub(crate) usage: Usage,
    /// Time from the choice of its endpoint to its end.
    pub(crate) whole: Duration,
    /// Time from its first byte to its end, if it was streamed.
    pub(crate) since_first: Option<Duration>,
}

impl TokenStats {
    /// `full` makes a statistic's name of its last part.
    pub(crate) fn new(full: impl Fn(&str) -> String) -> Self {
        let histogram = |name| LabelledHistogram::new(full(name));
        let amounts = |name| Amounts {
            each: histogram(name),
            total: LabelledCounter::new(full(&format!("{name}_total"))),
        };
        Self {
            input: amounts("input_tokens"),
            output: amounts("output_tokens"),
            cached: amounts("cached_tokens"),
            time_per_token: histogram("ntpot_us"),
            time_per_further_token: histogram("streaming_tpot_us"),
        }
    }

    pub(crate) fn count(&mut self, models: &Labels, answer: &WholeAnswer) {
        let WholeAnswer { usage, whole, since_first } = answer;
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

    /// Tells Envoy the totals.
    pub(crate) fn tell(&mut self) {
        for amounts in [&mut self.input, &mut self.output, &mut self.cached] {
            amounts.total.tell();
        }
    }
}
