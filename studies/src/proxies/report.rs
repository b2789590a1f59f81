//! The figures of [`choices`](mod@super::choices) as tables.

use super::choices::{ChoiceSample, MAX_OF_ONE, MIN_OF_ONE, ONE, Setting, WORKLOADS, is_as_good};
use super::fleet::Arrangement;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::{median, rounded};
use endpoint_picker_simulation::workload::Workload;
use std::fmt;

const SHARING: [Arrangement; 2] = [Arrangement::Store, Arrangement::OneAgent];

/// A round is hot if its p90 is more than this many times the median of one proxy: a server had more requests than it could serve. Prompts that
/// begin alike stay at the server that had the first of them, and where several frequent ones meet is decided early in a round, with one proxy
/// as with several, and with the EPP.
const HOT: f64 = 2.0;

/// All samples.
pub(crate) struct ChoiceTables<'a>(pub(crate) &'a [ChoiceSample]);

impl ChoiceTables<'_> {
    fn of(&self, workload: Workload, setting: Setting, figure: impl Fn(&ChoiceSample) -> f64) -> Vec<f64> {
        let samples = self.0.iter();
        let samples = samples.filter(|sample| sample.workload == workload && sample.setting == setting);
        samples.map(figure).collect()
    }

    fn median(&self, workload: Workload, setting: Setting, figure: fn(&ChoiceSample) -> f64) -> f64 {
        median(self.of(workload, setting, figure))
    }

    /// The median over the rounds of a figure divided by that of another setting in the same round. The first rounds have all settings.
    fn beside(
        &self,
        workload: Workload,
        setting: Setting,
        other: Setting,
        figure: fn(&ChoiceSample) -> f64,
    ) -> f64 {
        let pairs = self.of(workload, setting, figure).into_iter().zip(self.of(workload, other, figure));
        median(pairs.map(|(one, other)| one / other).collect())
    }

    /// All settings in the order of the proxies' number.
    fn settings(&self) -> Vec<Setting> {
        let mut settings: Vec<Setting> = Vec::new();
        for sample in self.0 {
            if !settings.contains(&sample.setting) {
                settings.push(sample.setting);
            }
        }
        settings.sort_by_key(|(_, proxies)| *proxies);
        settings
    }

    fn row(&self, workload: Workload, setting: Setting) -> [String; 10] {
        let (arrangement, proxies) = setting;
        let figure = |figure: fn(&ChoiceSample) -> f64| rounded(self.median(workload, setting, figure));
        let stored = self.of(workload, setting, |sample| sample.stored.unwrap_or(f64::NAN));
        let stored = median(stored.into_iter().filter(|bytes| bytes.is_finite()).collect());
        // Without sharing prompts are cached by fewer servers, which is another reason for a high p90.
        let decides_as_one =
            proxies == 1 || SHARING.contains(&arrangement) || arrangement == Arrangement::OneEpp;
        let hot = hot_rounds(
            &self.of(workload, setting, ChoiceSample::p90),
            self.median(workload, ONE, ChoiceSample::p90),
        );
        let failed: f64 =
            self.of(workload, setting, |sample| sample.outcome.failures.len() as f64).iter().sum();
        [
            workload.to_string(),
            proxies.to_string(),
            name(setting),
            figure(|sample| sample.cached() * 100.0),
            rounded(self.beside(workload, setting, ONE, ChoiceSample::cached)),
            figure(ChoiceSample::p90),
            rounded(self.beside(workload, setting, ONE, ChoiceSample::p90)),
            if decides_as_one { hot } else { String::new() },
            if arrangement == Arrangement::Store { rounded(stored) } else { String::new() },
            failed.to_string(),
        ]
    }

    /// Whether proxies that share choose as one does, and how they compare with EPPs.
    fn comparison(&self, workload: Workload, arrangement: Arrangement, proxies: usize) -> [String; 7] {
        let sharing = (arrangement, proxies);
        let cached = |other| self.beside(workload, sharing, other, ChoiceSample::cached);
        let p90 = |other| self.beside(workload, sharing, other, ChoiceSample::p90);
        let one = [cached(ONE), p90(ONE)];
        let beside_epp = |arrangement| {
            let other = (arrangement, proxies);
            let is_measured = self.settings().contains(&other);
            is_measured.then(|| [cached(other), p90(other)])
        };
        let both = |[cached, p90]: [f64; 2]| format!("{}; {}", rounded(cached), rounded(p90));
        let one_epp = beside_epp(Arrangement::OneEpp);
        let own_epps = beside_epp(Arrangement::OwnEpps);
        [
            format!("{workload}, {proxies} proxies {arrangement}"),
            both(one),
            met(is_as_good(one)).to_owned(),
            one_epp.map(both).unwrap_or_default(),
            one_epp.map(|figures| met(is_as_good(figures)).to_owned()).unwrap_or_default(),
            own_epps.map(both).unwrap_or_default(),
            own_epps
                .map(|[cached, p90]| met(cached > 1.0 && p90 < MAX_OF_ONE).to_owned())
                .unwrap_or_default(),
        ]
    }
}

/// The number of hot rounds, of all rounds.
fn hot_rounds(p90: &[f64], median_of_one: f64) -> String {
    format!("{} of {}", p90.iter().filter(|p90| **p90 > HOT * median_of_one).count(), p90.len())
}

fn name((arrangement, proxies): Setting) -> String {
    match (arrangement, proxies) {
        (Arrangement::Apart, 1) => "one proxy".to_owned(),
        (arrangement, _) => arrangement.to_string(),
    }
}

impl fmt::Display for ChoiceTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "",
            "proxies",
            "",
            "% of prompt tokens cached",
            "to one proxy",
            "p90 ms to the first token",
            "to one proxy",
            "hot rounds",
            "bytes to the store for a request",
            "failed",
        ];
        let settings = self.settings();
        let rows = WORKLOADS.into_iter().flat_map(|workload| {
            settings.iter().map(move |&setting| self.row(workload, setting)).collect::<Vec<_>>()
        });
        table(f, &head, rows)?;

        writeln!(
            f,
            "Proxies that share, divided by others of the same round: tokens cached; p90. Aims beside one proxy, and beside proxies with one EPP: at least \
             {MIN_OF_ONE}; at most {MAX_OF_ONE}. Beside an EPP for each proxy: more tokens cached; p90 not above {MAX_OF_ONE}.\n"
        )?;
        let head = ["", "to one proxy", "", "to one EPP for all", "", "to an EPP for each", ""];
        let rows = WORKLOADS.into_iter().flat_map(|workload| {
            let sharing = settings.iter().filter(|(arrangement, _)| SHARING.contains(arrangement));
            sharing
                .map(|&(arrangement, proxies)| self.comparison(workload, arrangement, proxies))
                .collect::<Vec<_>>()
        });
        table(f, &head, rows)
    }
}
