//! The rules that a replay compares, as policies.

use crate::simulation::pickers::{Contents, Mechanism};
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::{NamedRules, v1};
use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::manifests::{File, Problems};
use std::path::Path;
use std::time::Duration;

/// The producer of cached prefixes that follows the servers' KV-cache events.
const BY_EVENTS: &str = "precise-prefix-cache-producer";

/// The policy of the rules of this name.
pub fn named(rules: NamedRules) -> Option<v1::Policy> {
    only_policy(Plan::without_manifests(&Options { rules: Some(rules), ..options() }))
}

/// The policy of the first pool of a file with an `EndpointPickerConfig`.
pub fn read(path: &Path, bytes: &[u8]) -> Result<Option<v1::Policy>, Problems> {
    let file = File { path: path.into(), bytes: bytes.to_vec() };
    Plan::read(&[file], &options()).map(only_policy)
}

/// Picks by a policy. If it has the producer of KV-cache events, events are followed.
pub fn mechanism(policy: v1::Policy) -> Mechanism {
    let plugins = policy.picker_config.iter().flat_map(|config| &config.plugins);
    let follows_events = plugins.into_iter().any(|plugin| plugin.r#type == BY_EVENTS);
    let contents = if follows_events { Contents::Events } else { Contents::Sent };
    Mechanism::Rules { policy: Box::new(policy), contents }
}

fn only_policy(plan: Plan) -> Option<v1::Policy> {
    plan.pools.into_iter().next().map(|pool| pool.policy)
}

/// The agent's defaults, with all plugins: nothing is routed by them.
fn options() -> Options {
    Options {
        allow_experimental_plugins: true,
        default_pool: "default".to_owned(),
        emit_endpoint_scores: false,
        neutral_score_after: None,
        avoid_failing: Duration::from_millis(250),
        epp_rules: EppRules::default(),
        rules: None,
    }
}
