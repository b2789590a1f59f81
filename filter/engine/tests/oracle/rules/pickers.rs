//! Which choices a picker may come to.

use super::plan::Plugin;

/// Totals closer than this count as equal: both sides add up in their own way.
const NEAR: f64 = 1e-9;

/// Checks that the picker can choose `picked`.
pub(super) fn check(
    picker: &Plugin,
    candidates: &[usize],
    totals: &[f64],
    picked: &[usize],
) -> Result<(), String> {
    let length = picker.number("maxNumOfEndpoints", 1.0).max(1.0);
    let length = candidates.len().min(if length > 99.0 {
        99
    } else {
        (1..99).rfind(|&n| n as f64 <= length).unwrap()
    });
    if picked.len() != length {
        return Err(format!("{} endpoints are picked, not {length}", picked.len()));
    }
    let rank = |total: f64| match picker.kind.as_str() {
        "max-score-picker" => total,
        "weighted-random-picker" => f64::from(u8::from(total > NEAR)),
        _ => 0.0,
    };
    let ranks: Vec<f64> = totals.iter().map(|&total| rank(total)).collect();
    check_ranks(candidates, &ranks, picked)
}

/// Checks that `listed` has all candidates, best first.
pub(super) fn check_order(candidates: &[usize], totals: &[f64], listed: &[usize]) -> Result<(), String> {
    if listed.len() != candidates.len() {
        return Err(format!("{listed:?} are listed, not all of {candidates:?}"));
    }
    check_ranks(candidates, totals, listed)
}

/// Checks that no better candidate was passed over.
fn check_ranks(candidates: &[usize], ranks: &[f64], picked: &[usize]) -> Result<(), String> {
    for (at, endpoint) in picked.iter().enumerate() {
        if !candidates.contains(endpoint) || picked[..at].contains(endpoint) {
            return Err(format!("endpoint {endpoint} is not a candidate, or picked twice"));
        }
    }
    let rank =
        |endpoint: usize| ranks[candidates.iter().position(|&candidate| candidate == endpoint).unwrap()];
    for (at, &endpoint) in picked.iter().enumerate() {
        let better = candidates
            .iter()
            .find(|other| !picked[..at].contains(other) && rank(**other) > rank(endpoint) + NEAR);
        if let Some(better) = better {
            return Err(format!(
                "endpoint {endpoint} is picked before {better}; ranks {ranks:?} of {candidates:?}"
            ));
        }
    }
    Ok(())
}
