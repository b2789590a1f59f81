//! How the scores of endpoints are told, if the policy says so.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use endpoint_picker::decision::Decision;
use endpoint_picker::pool::Pool;
use endpoint_picker_wire::endpoint_scores;

/// Bytes of scores that a header may carry: Envoy's `header_to_metadata` passes over values of 8 KiB and more, and four
/// letters carry three bytes.
const MOST_SCORE_BYTES: usize = 8191 / 4 * 3;

/// The weighted total of every endpoint the primary profile rated, as `header_to_metadata` reads a structured value;
/// `None` if none was rated.
pub(crate) fn scores(decision: &Decision, pool: &Pool) -> Option<String> {
    let run = decision.primary_run()?;
    let addresses = run.scored.iter().map(|&endpoint| pool.endpoints()[endpoint].printed_address());
    let scores = addresses.zip(run.totals.iter().copied()).collect();
    Some(BASE64_STANDARD.encode(endpoint_scores(scores, MOST_SCORE_BYTES)))
}
