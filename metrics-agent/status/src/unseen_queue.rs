//! Servers that have shown no queue although they had work.

use core::fmt;

use endpoint_picker_wire::v1;
use serde::{Deserialize, Serialize};

/// Types of scorers that score a server by its waiting requests alone.
const QUEUE_SCORERS: [&str; 2] = ["queue-scorer", "load-aware-scorer"];

/// A server that has shown no waiting request in many readings with work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenQueue {
    /// Readings with several requests running: [`Self::BUSY`] or more.
    pub busy_readings: u64,
    /// The most requests that ran in a reading.
    pub most_running: u64,
    /// Whether the server reports a number of waiting requests, which was always 0.
    pub is_reported: bool,
    /// Types of the pool's scorers that score by waiting requests alone.
    pub scorers: Vec<String>,
}

impl UnseenQueue {
    /// Running requests from which a reading counts as busy. llm-d-inference-sim has five places by default.
    pub const BUSY: u64 = 4;

    /// Busy readings from which none of them is an accident: five seconds of readings every 50 ms.
    pub const MANY_READINGS: u64 = 100;

    /// Whether a scorer of the pool cannot see how busy the server is, with this number of requests in flight
    /// there: it reports no queue, or the number is more than twice the greatest that ran, and none waited.
    /// Twice, because some of those in flight are on the way to the server or back.
    pub fn hides_load(&self, in_flight: u64) -> bool {
        let is_hidden = !self.is_reported || in_flight > self.most_running.saturating_mul(2);
        is_hidden && !self.scorers.is_empty()
    }
}

/// Types of a pool's scorers that score by waiting requests alone. A pool without rules has the EPP's.
pub fn queue_scorers(policy: Option<&v1::Policy>) -> Vec<String> {
    let Some(config) = policy.and_then(|policy| policy.picker_config.as_ref()) else {
        return vec![QUEUE_SCORERS[0].to_owned()];
    };
    let is_used = |name: &str| {
        let mut used = config.profiles.iter().flat_map(|profile| &profile.plugins);
        used.any(|plugin| plugin.name == name)
    };
    let is_scorer = |r#type: &&str| {
        config.plugins.iter().any(|plugin| plugin.r#type == **r#type && is_used(&plugin.name))
    };
    QUEUE_SCORERS.iter().filter(|it| is_scorer(it)).map(|it| (*it).to_owned()).collect()
}

impl fmt::Display for UnseenQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { busy_readings, most_running, is_reported, scorers } = self;
        f.write_str(if *is_reported {
            "no request waited"
        } else {
            "the server reports no waiting requests"
        })?;
        write!(f, " in {busy_readings} busy readings with up to {most_running} running")?;
        match scorers.as_slice() {
            [] => f.write_str("; no scorer of the pool goes by waiting requests alone"),
            scorers => {
                let verb = if scorers.len() == 1 { "takes" } else { "take" };
                write!(f, ": {} {verb} it for idle", scorers.join(" and "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unseen(is_reported: bool, scorers: &[&str]) -> UnseenQueue {
        let scorers = scorers.iter().map(|it| (*it).to_owned()).collect();
        UnseenQueue { busy_readings: 240, most_running: 15, is_reported, scorers }
    }

    #[test]
    fn the_text_says_what_it_means_for_the_pools_scorers() {
        let cases = [
            (
                unseen(true, &["queue-scorer"]),
                "no request waited in 240 busy readings with up to 15 running: queue-scorer takes it for \
                 idle",
            ),
            (
                unseen(false, &QUEUE_SCORERS),
                "the server reports no waiting requests in 240 busy readings with up to 15 running: \
                 queue-scorer and load-aware-scorer take it for idle",
            ),
            (
                unseen(true, &[]),
                "no request waited in 240 busy readings with up to 15 running; no scorer of the pool goes by \
                 waiting requests alone",
            ),
        ];
        for (queue, text) in cases {
            assert_eq!(queue.to_string(), text);
        }
    }

    #[test]
    fn load_is_hidden_if_more_is_in_flight_than_the_server_has_ever_shown() {
        let scorers = ["queue-scorer"];
        assert!(!unseen(true, &scorers).hides_load(30));
        assert!(unseen(true, &scorers).hides_load(31));
        assert!(unseen(false, &scorers).hides_load(0));
        assert!(!unseen(true, &[]).hides_load(u64::MAX));
        assert!(!unseen(false, &[]).hides_load(u64::MAX));
    }

    #[test]
    fn the_pools_scorers_are_those_that_a_profile_uses() {
        assert_eq!(queue_scorers(None), ["queue-scorer"]);
        assert_eq!(queue_scorers(Some(&v1::Policy::default())), ["queue-scorer"]);
        let plugin = |name: &str, r#type: &str| v1::Plugin {
            name: name.to_owned(),
            r#type: r#type.to_owned(),
            ..v1::Plugin::default()
        };
        let plugins = vec![
            plugin("load", "load-aware-scorer"),
            plugin("unused", "queue-scorer"),
            plugin("latency", "expected-latency-scorer"),
        ];
        let of = |names: &[&str]| {
            let used = names.iter().map(|name| v1::PluginRef { name: (*name).to_owned(), weight: None });
            let profiles = vec![v1::Profile { plugins: used.collect(), ..v1::Profile::default() }];
            let config =
                v1::PickerConfig { plugins: plugins.clone(), profiles, ..v1::PickerConfig::default() };
            queue_scorers(Some(&v1::Policy { picker_config: Some(config), ..v1::Policy::default() }))
        };
        assert_eq!(of(&["load", "latency"]), ["load-aware-scorer"]);
        assert_eq!(of(&["unused", "load"]), QUEUE_SCORERS);
        assert!(of(&["latency"]).is_empty());
    }
}
