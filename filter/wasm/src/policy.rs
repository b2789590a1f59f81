//! What the policy says, beside its data: the picker's pipeline, and how scores are told.

use core::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use endpoint_picker::decision::Decision;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::AnyPlugin;
use endpoint_picker::pool::Pool;
use endpoint_picker_wire::{endpoint_scores, picker_config_into_core, v1};

/// Bytes of scores that a header may carry: Envoy's `header_to_metadata` passes over values of 8 KiB and more, and four
/// letters carry three bytes.
const MOST_SCORE_BYTES: usize = 8191 / 4 * 3;

/// The pipeline of a policy's configuration, or of the default when it has none.
pub(crate) fn pipeline(policy: &mut v1::Policy) -> Result<Pipeline, String> {
    let pipeline = match policy.picker_config.take() {
        Some(config) => {
            let config = picker_config_into_core(config, read_plugin).map_err(|error| error.to_string())?;
            Pipeline::compile(config).map_err(|error| error.to_string())?
        }
        None => Pipeline::default(),
    };
    Ok(pipeline.with_no_opinion_after(policy.no_opinion_after_ms.map(Duration::from_millis)))
}

fn read_plugin(r#type: &str, parameters: &str) -> Result<AnyPlugin, String> {
    let parameters: serde_json::Value =
        serde_json::from_str(parameters).map_err(|error| error.to_string())?;
    let plugin = serde_json::json!({"type": r#type, "parameters": parameters});
    serde_json::from_value(plugin).map_err(|error| error.to_string())
}

/// The weighted total of every endpoint the primary profile rated, as `header_to_metadata` reads a structured value;
/// `None` if none was rated.
pub(crate) fn scores(decision: &Decision, pool: &Pool) -> Option<String> {
    let run = decision.primary_run()?;
    let addresses = run.scored.iter().map(|&endpoint| pool.endpoints()[endpoint].printed_address());
    let scores = addresses.zip(run.totals.iter().copied()).collect();
    Some(BASE64_STANDARD.encode(endpoint_scores(scores, MOST_SCORE_BYTES)))
}
