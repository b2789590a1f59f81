//! The endpoint that another one may copy KV blocks from.

use super::cycle::Cycle;
use super::handlers::Run;
use super::plan::Plugin;

/// The endpoint that the producer names for these runs, of which the one of `primary` has the destination.
pub(super) fn source(
    cycle: &Cycle<'_>,
    producer: &Plugin,
    candidates: &[usize],
    runs: &[Run],
    primary: &str,
) -> Option<usize> {
    let matches = cycle.matches(producer.prefixes());
    let cached = |endpoint: usize| matches.tokens(endpoint) as u64;
    let most = candidates.iter().map(|&endpoint| cached(endpoint)).max()?;
    let near_most =
        |endpoint: &usize| cached(*endpoint) > 0 && cached(*endpoint) + matches.block_tokens() >= most;
    let band: Vec<usize> = candidates.iter().copied().filter(near_most).collect();
    let weight = |endpoint: usize| 1.0 / (1.0 + cycle.reading(endpoint).waiting.unwrap_or(0) as f64);
    let mut hash: u64 = 2_166_136_261;
    for byte in cycle.header("x-request-id").unwrap().bytes() {
        hash = (hash ^ u64::from(byte)) * 16_777_619 % (1 << 32);
    }
    let total: f64 = band.iter().map(|&endpoint| weight(endpoint)).sum();
    let mut target = hash as f64 / 2_f64.powi(32) * total;
    let mut drawn = *band.last()?;
    for &endpoint in &band {
        if target < weight(endpoint) {
            drawn = endpoint;
            break;
        }
        target -= weight(endpoint);
    }
    let picked = |profile: &str| runs.iter().find(|run| run.profile == profile)?.picked.first().copied();
    let computing = picked("prefill").or_else(|| picked(primary))?;
    let ahead = cached(drawn) as f64 - cached(computing) as f64;
    (drawn != computing && ahead >= producer.number("minCachedTokenDelta", 1.0)).then_some(drawn)
}
