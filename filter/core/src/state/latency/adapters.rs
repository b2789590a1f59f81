//! The models that are LoRA adapters, and how many of them a server holds at once.
//!
//! Readings name the adapters of a server. Without such readings the streams show them: where servers respond
//! to several models, each model counts as an adapter, and a server holds the number of models at once to
//! which one was seen to respond at the same time. Names of one model all respond at the same time, so that
//! soon none of them waits for another.

use hashbrown::HashSet;
use xxhash_rust::xxh64::xxh64;

use crate::pool::reading::Reading;

/// Adapters that are known; more are not.
const MAX_ADAPTERS: usize = 4096;

/// Weight of the newest response in the share of streams: the last hundred responses.
const STREAM_WEIGHT: f64 = 0.01;

/// Share of the responses that have to be streams for models to count as adapters: other responses do not
/// show which models a server runs at once.
const MIN_STREAMS: f64 = 0.5;

/// The models that a server holds at once become fewer by this number with each first output that shows
/// fewer: a preempted request, which has given its place to another model, counts as one that runs. So one
/// wrong count is forgotten after 500 first outputs, and a full server shows the number again much sooner.
const FORGOTTEN: f64 = 0.001;

/// Identifies a model by its name; never 0.
pub fn adapter_key(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0).max(1)
}

/// The adapters of a pool, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    /// Whether readings show adapters.
    is_reported: bool,
    /// Adapters that servers have reported.
    reported: HashSet<u64>,
    /// The greatest number of adapters that a server holds at once, as reported.
    max_reported: u32,
    /// The model of the first stream; 0 before it.
    first: u64,
    /// Whether streams of another model have ended.
    has_several: bool,
    /// Share of the responses that are streams, a mean.
    streams: f64,
    /// Models that a server holds at once, as streams show.
    at_once: f64,
}

impl Adapters {
    /// The key by which the requests of a model are counted; 0: they are not.
    pub(super) fn counted(&self, model: &str) -> u64 {
        if !self.is_reported {
            return adapter_key(model);
        }
        self.reported(model).unwrap_or(0)
    }

    /// The key of a model that is an adapter.
    pub(super) fn key(&self, model: &str) -> Option<u64> {
        if self.is_reported {
            return self.reported(model);
        }
        (self.has_several && self.streams >= MIN_STREAMS).then(|| adapter_key(model))
    }

    fn reported(&self, model: &str) -> Option<u64> {
        if self.reported.is_empty() {
            return None;
        }
        Some(adapter_key(model)).filter(|key| self.reported.contains(key))
    }

    /// The greatest number of adapters that a server holds at once; 0 if none is known.
    pub(super) fn max(&self) -> u32 {
        if self.is_reported {
            return self.max_reported;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 64")]
        let max = self.at_once.round() as u32;
        max
    }

    /// Takes in the adapters of a server.
    pub(super) fn read(&mut self, reading: &Reading) {
        let Some(lora) = &reading.lora else { return };
        self.is_reported = true;
        self.max_reported = self.max_reported.max(lora.max);
        for name in lora.running.iter().chain(&lora.waiting) {
            if self.reported.len() >= MAX_ADAPTERS {
                return;
            }
            self.reported.insert(adapter_key(name));
        }
    }

    /// Takes in a first output of a server that has requests of this many models in flight, and this many
    /// requests without output. Each of these may wait for its model, but the others run.
    pub(super) fn answered(&mut self, models: usize, unanswered: u64) {
        let running = models.saturating_sub(usize::try_from(unanswered).unwrap_or(usize::MAX));
        self.at_once = (running as f64).max(self.at_once - FORGOTTEN);
    }

    /// Takes in the end of a response of the model with this key.
    pub(super) fn ended(&mut self, model: u64, is_stream: bool) {
        let share = if is_stream { 1.0 } else { 0.0 };
        self.streams += STREAM_WEIGHT * (share - self.streams);
        if is_stream && model != 0 {
            if self.first == 0 {
                self.first = model;
            }
            self.has_several |= model != self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::reading::Lora;
    use crate::test;

    /// Adapters after this many responses of each model.
    fn after(models: &[&str], responses: usize, is_stream: bool) -> Adapters {
        let mut adapters = Adapters::default();
        for model in models.iter().cycle().take(models.len() * responses) {
            adapters.ended(adapters.counted(model), is_stream);
        }
        adapters
    }

    #[test]
    fn models_are_adapters_where_streams_of_several_have_ended() {
        for (models, responses, is_stream, expected) in [
            (&["sql"][..], 1_000, true, false),
            (&["sql", "legal"], 500, false, false),
            (&["sql", "legal"], 20, true, false),
            (&["sql", "legal"], 500, true, true),
        ] {
            let adapters = after(models, responses, is_stream);
            assert_eq!(adapters.key("other").is_some(), expected, "{models:?} {responses} {is_stream}");
            assert_eq!(adapters.counted("other"), adapter_key("other"));
        }
    }

    #[test]
    fn of_servers_that_report_adapters_no_other_model_is_one() {
        let mut adapters = after(&["base", "sql"], 500, true);
        let lora = Lora { running: vec!["sql".to_owned()], waiting: vec![], max: 4 };
        adapters.answered(9, 0);
        adapters.read(&Reading { lora: Some(lora), ..Reading::default() });
        assert_eq!((adapters.key("base"), adapters.counted("base"), adapters.max()), (None, 0, 4));
        assert_eq!(
            (adapters.key("sql"), adapters.counted("sql")),
            (Some(adapter_key("sql")), adapter_key("sql"))
        );
    }

    #[test]
    fn models_that_respond_at_the_same_time_are_held_at_once() {
        let mut adapters = Adapters::default();
        let mut max = |models, unanswered| {
            adapters.answered(models, unanswered);
            adapters.max()
        };
        assert_eq!([max(1, 0), max(4, 3), max(4, 2), max(4, 1), max(2, 9)], [1, 1, 2, 3, 3]);
        for _ in 0..400 {
            max(1, 0);
        }
        assert_eq!(max(1, 0), 3);
        for _ in 0..200 {
            max(1, 0);
        }
        assert_eq!([max(1, 0), max(3, 0)], [2, 3], "one of a thousand does not show more");
    }
}
