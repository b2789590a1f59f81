//! What happens when the store or a proxy is killed.

mod proxy_killed;
mod store_outage;

pub(crate) use store_outage::OutagePlan;

use self::store_outage::OutageResult;
use super::arrangement::Arrangement;
use crate::report::markdown::{met, table};
use crate::report::{Progress, median, rounded};
use anyhow::Result;
use std::time::Duration;

/// The cached share should be back within this time after the store.
const BACK_AIM: Duration = Duration::from_secs(10);
/// The loads of a proxy that was killed should count no longer.
const GONE_AIM: Duration = Duration::from_secs(2);
/// One round of [`proxy_killed`] takes about this long.
const KILL_ROUND: Duration = Duration::from_secs(5);
const SHARING: [Arrangement; 2] = [Arrangement::Store, Arrangement::OneAgent];

/// The parameters of both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailurePlan {
    pub(crate) outage: OutagePlan,
    /// How often a proxy is killed in each arrangement.
    pub(crate) kills: u32,
}

impl FailurePlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        self.outage.expected() + KILL_ROUND * self.kills * 2
    }
}

/// Kills the store, then proxies; returns a table.
pub(crate) async fn measure(plan: FailurePlan, progress: &Progress) -> Result<String> {
    let outage = store_outage::measure(plan.outage, progress).await?;
    let mut rows = outage_rows(plan.outage, &outage);
    for arrangement in SHARING {
        let mut times = Vec::new();
        for round in 0..plan.kills {
            let took = proxy_killed::measure(arrangement, plan.outage.filter).await?;
            progress.print(&format!(
                "proxy killed, {arrangement}, round {}: its loads counted for {:.0} ms",
                round + 1,
                took.as_secs_f64() * 1e3
            ));
            times.push(took.as_secs_f64());
        }
        let most = times.iter().copied().fold(0.0, f64::max);
        rows.push([
            format!("a proxy killed, {arrangement}: its loads count for, s (median, most)"),
            format!("{}, {}", rounded(median(times)), rounded(most)),
            format!("≤ {}", GONE_AIM.as_secs()),
            met(most <= GONE_AIM.as_secs_f64()).to_owned(),
        ]);
    }
    let mut text = String::new();
    // A String does not fail.
    let _ = table(&mut text, &["", "", "aim", ""], rows);
    Ok(text)
}

fn outage_rows(plan: OutagePlan, result: &OutageResult) -> Vec<[String; 4]> {
    let OutageResult { outcome, cached, back_after } = result;
    let OutagePlan { proxies, away, .. } = plan;
    let lost = outcome.failures.len();
    let sent = lost + outcome.first_byte.len();
    let percents = cached.map(|share| rounded(share * 100.0)).join("; ");
    let back = back_after.map_or_else(|| "not in this run".to_owned(), |back| rounded(back.as_secs_f64()));
    vec![
        [
            format!("{proxies} proxies, the store killed for {} s, then back empty: requests lost", away.as_secs()),
            format!("{lost} of {sent}"),
            "0".to_owned(),
            met(lost == 0).to_owned(),
        ],
        [
            "the same: % of prompt tokens cached before; in the last third of the outage; at the end".to_owned(),
            percents,
            String::new(),
            String::new(),
        ],
        [
            "the same: s after the store's return from which on 3 s have as many tokens cached as the worst 3 s before".to_owned(),
            back,
            format!("≤ {}", BACK_AIM.as_secs()),
            met(back_after.is_some_and(|back| back <= BACK_AIM)).to_owned(),
        ],
    ]
}
