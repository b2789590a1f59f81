//! The traffic of all proxies together. Counts come from outside and may have any value, so sums saturate.

use super::status::{PoolTraffic, ResponseTimes, TrafficStatus};
use crate::api::queues::waits::Waits;
use crate::api::reports::recent::RecentTraffic;
use crate::api::reports::store::EndpointTraffic;

/// Traffic to one endpoint.
pub(super) fn of_endpoint<'a>(
    picks: u64,
    entries: impl Iterator<Item = &'a EndpointTraffic>,
) -> TrafficStatus {
    let mut sum = TrafficStatus { picks, ..TrafficStatus::default() };
    let mut first_byte = Waits::default();
    for entry in entries {
        add_rate(&mut sum.picks_per_second, entry.picks_per_second);
        add_rate(&mut sum.errors_per_second, entry.responses.errors_per_second);
        sum.requests = sum.requests.saturating_add(entry.requests);
        sum.tokens = sum.tokens.saturating_add(entry.tokens);
        sum.failing |= entry.failing;
        first_byte.add(&entry.responses.first_byte);
    }
    TrafficStatus { first_byte_ms: times(&first_byte), ..sum }
}

/// Traffic to the pool; `None`: no proxy reports.
pub(super) fn of_pool<'a>(reports: impl Iterator<Item = &'a RecentTraffic>) -> Option<PoolTraffic> {
    let mut sum: Option<PoolTraffic> = None;
    let (mut blocks, mut matched, mut first_token) = (0_u64, 0_u64, Waits::default());
    for report in reports {
        let sum = sum.get_or_insert_default();
        if let Some(rates) = &report.rates {
            add_rate(&mut sum.routed_per_second, Some(rates.routed));
            add_rate(&mut sum.served_elsewhere_per_second, Some(rates.served_elsewhere));
            add_rate(&mut sum.abstained_per_second, Some(rates.abstained));
            for (status, rate) in &rates.rejected {
                *sum.rejected_per_second.entry(*status).or_default() += rate;
            }
        }
        blocks = blocks.saturating_add(report.prompt_blocks);
        matched = matched.saturating_add(report.prompt_blocks_matched);
        first_token.add(&report.first_token);
    }
    let mut sum = sum?;
    sum.first_token_ms = times(&first_token);
    sum.prefix_hits = (blocks > 0).then(|| (matched as f64 / blocks as f64).min(1.0));
    Some(sum)
}

fn add_rate(sum: &mut Option<f64>, more: Option<f64>) {
    *sum = sum.iter().copied().chain(more).reduce(|a, b| a + b);
}

fn times(waits: &Waits) -> Option<ResponseTimes> {
    Some(ResponseTimes { p50: waits.percentile_ms(0.5)?, p95: waits.percentile_ms(0.95)? })
}
