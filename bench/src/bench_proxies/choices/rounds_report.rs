//! Several proxies beside one, in many rounds of the same requests.

use super::hot_rounds::{HOT, hot_rounds};
use super::{ChoiceSample, ONE, Setting, WORKLOADS, is_as_good};
use crate::report::markdown::{met, table};
use crate::report::{median, rounded};
use std::fmt;

/// All samples of the settings, each of which has the same rounds.
pub(crate) struct RoundsTable<'a> {
    pub(crate) settings: &'a [Setting],
    pub(crate) samples: &'a [ChoiceSample],
}

impl fmt::Display for RoundsTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Each round has the same requests for all. A round is hot if its p90 is more than {HOT} times the median of one proxy.\n"
        )?;
        let head = [
            "",
            "proxies",
            "% of prompt tokens cached",
            "to one proxy",
            "p90 ms to the first token, by round",
            "to one proxy",
            "hot rounds",
            "",
        ];
        let mut rows = Vec::new();
        for workload in WORKLOADS {
            let of = |setting: Setting, figure: fn(&ChoiceSample) -> f64| -> Vec<f64> {
                let samples = self.samples.iter();
                let samples =
                    samples.filter(|sample| sample.workload == workload && sample.setting == setting);
                samples.map(figure).collect()
            };
            let beside_one = |setting, figure| {
                let pairs = of(setting, figure).into_iter().zip(of(ONE, figure));
                median(pairs.map(|(one, other)| one / other).collect())
            };
            for &setting in self.settings {
                let p90 = of(setting, ChoiceSample::p90);
                let beside =
                    [ChoiceSample::cached, ChoiceSample::p90].map(|figure| beside_one(setting, figure));
                let by_round: Vec<String> = p90.iter().copied().map(rounded).collect();
                let (arrangement, proxies) = setting;
                let name = if setting == ONE { String::new() } else { format!(" {arrangement}") };
                rows.push([
                    workload.to_string(),
                    format!("{proxies}{name}"),
                    rounded(100.0 * median(of(setting, ChoiceSample::cached))),
                    rounded(beside[0]),
                    by_round.join(", "),
                    rounded(beside[1]),
                    hot_rounds(&p90, median(of(ONE, ChoiceSample::p90))),
                    if setting == ONE { String::new() } else { met(is_as_good(beside)).to_owned() },
                ]);
            }
        }
        table(f, &head, rows)
    }
}
