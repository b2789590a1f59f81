//! The endpoints' scores as a header, if the policy asks for them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use endpoint_picker::decision::Decision;
use endpoint_picker::pool::Pool;
use endpoint_picker_wire::endpoint_scores;

use crate::headers::LONGEST_VALUE;

/// Bytes of scores that fit into a header value: four letters of base64 carry three bytes.
const MAX_BYTES: usize = LONGEST_VALUE / 4 * 3;

/// The weighted total of every endpoint that the primary profile rated, in the form that Envoy's `header_to_metadata` reads as
/// a structured value; `None` if no endpoint was rated.
pub(crate) fn header(decision: &Decision, pool: &Pool) -> Option<String> {
    let run = decision.primary_run()?;
    let rated = run.scored.iter().zip(run.totals.iter().copied());
    let scores =
        rated.filter_map(|(&index, total)| Some((pool.endpoints().get(index)?.printed_address(), total)));
    Some(BASE64_STANDARD.encode(endpoint_scores(scores.collect(), MAX_BYTES)))
}
