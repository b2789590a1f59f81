//! The figures of all rounds as a table.

use super::Rounds;
use super::gateway::Round;
use crate::bench_proxies::arrangement::Arrangement;
use crate::bench_proxies::choices::ONE;
use crate::bench_proxies::choices::{HOT, are_hot, hot_rounds};
use crate::report::markdown::table;
use crate::report::{median, rounded};
use std::fmt;

/// The rounds of all settings; those of one proxy come first in each workload.
pub(super) struct RoundTable<'a>(pub(super) &'a [Rounds]);

impl Round {
    fn p90(&self) -> f64 {
        self.outcome.percentile(0.9)
    }
}

impl Rounds {
    fn p90(&self) -> Vec<f64> {
        self.rounds.iter().map(Round::p90).collect()
    }

    /// The p90 of each round divided by that of another setting in the same round, least first.
    fn beside(&self, other: &Self) -> Vec<f64> {
        let mut ratios: Vec<f64> =
            self.rounds.iter().zip(&other.rounds).map(|(round, other)| round.p90() / other.p90()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios
    }

    /// Percent of the requests at the server with most of them: the median of rounds that are hot, or of the others.
    fn most(&self, of_hot: bool, median_of_one: f64) -> String {
        let are_hot = are_hot(&self.p90(), median_of_one).collect::<Vec<_>>();
        let rounds = self.rounds.iter().zip(are_hot).filter(|(_, is_hot)| *is_hot == of_hot);
        let most: Vec<f64> = rounds.map(|(round, _)| 100.0 * round.most).collect();
        if most.is_empty() { "–".to_owned() } else { rounded(median(most)) }
    }

    fn row(&self, one: &Self) -> [String; 8] {
        let (arrangement, proxies) = self.setting;
        let p90 = self.p90();
        let of_one = median(one.p90());
        let cached = median(self.rounds.iter().map(|round| 100.0 * round.cached).collect());
        let beside = self.beside(one);
        let at = |part: usize| rounded(beside.get(beside.len() * part / 10).copied().unwrap_or(f64::NAN));
        let is_one = self.setting == ONE;
        // Without sharing prompts are cached by fewer servers, which is another reason for a high p90.
        let is_apart = arrangement == Arrangement::Apart && !is_one;
        [
            self.workload.to_string(),
            if is_one { "1".to_owned() } else { format!("{proxies} {arrangement}") },
            rounded(cached),
            rounded(median(p90.clone())),
            if is_one { String::new() } else { rounded(median(beside.clone())) },
            if is_one { String::new() } else { format!("{} to {}", at(1), at(9)) },
            if is_apart { String::new() } else { hot_rounds(&p90, of_one) },
            if is_apart {
                String::new()
            } else {
                format!("{}; {}", self.most(true, of_one), self.most(false, of_one))
            },
        ]
    }
}

impl fmt::Display for RoundTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "A round is hot if its p90 is more than {HOT} times the median of one proxy. Medians of all rounds:\n"
        )?;
        let head = [
            "",
            "proxies",
            "% of prompt tokens cached",
            "p90 ms to the first token",
            "to one proxy in the same round",
            "in eight of ten rounds",
            "hot rounds",
            "% of requests at one server: hot rounds; others",
        ];
        let mut one = None;
        let rows = self.0.iter().map(|rounds| {
            if rounds.setting == ONE {
                one = Some(rounds);
            }
            rounds.row(one.unwrap_or(rounds))
        });
        table(f, &head, rows)
    }
}
