//! Differences from the EPP that a pool's manifests show.
//!
//! `docs/reference/differences.md` has all differences, also the differences that hold for every pool.

use core::fmt;

use endpoint_picker_wire::v1;

use super::PoolPlan;
use super::epp::types::{self, Here};
use super::plan::members::Members;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The plugin or object.
    pub subject: String,
    /// The difference, and where there is one, the way to the EPP's behaviour.
    pub text: &'static str,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)
    }
}

/// The differences that a pool's objects make.
pub fn of_pool(pool: &PoolPlan) -> Vec<Difference> {
    let policy = &pool.policy;
    let of_plugins = policy.picker_config.iter().flat_map(of_config);
    let of_objects = [
        (
            policy.failure_mode() != v1::FailureMode::Unspecified,
            "failureMode",
            "applies until the filter has its first snapshot; the EPP's applies whenever the EPP does not answer",
        ),
        (
            has_several_ports(&pool.members),
            "targetPorts",
            "an entry ip:port of a subset hint matches with its port; the EPP ignores the port",
        ),
        (
            policy.objectives.iter().any(|objective| objective.priority < 0),
            "InferenceObjective with a priority below 0",
            "without a candidate its requests are answered 503; the EPP answers 429",
        ),
        (
            !policy.rewrite_rules.is_empty(),
            "InferenceModelRewrite",
            "only the bytes of the model change in a body; the EPP writes the whole JSON again",
        ),
        (
            !policy.inference_models.is_empty(),
            "InferenceModel",
            "a model that no InferenceModel names is answered 404; the EPP does not read these objects any more",
        ),
    ];
    let of_objects = of_objects.into_iter().filter(|(is_visible, ..)| *is_visible);
    let of_objects = of_objects.map(|(_, subject, text)| Difference { subject: subject.to_owned(), text });
    of_plugins.chain(of_objects).collect()
}

/// The differences that a configuration's plugins make.
fn of_config(config: &v1::PickerConfig) -> Vec<Difference> {
    let of_plugin = |plugin: &v1::Plugin| {
        let Here::Differs(text) = types::find(&plugin.r#type)?.here else { return None };
        Some(Difference { subject: format!("plugin {:?}", plugin.name), text })
    };
    config.plugins.iter().filter_map(of_plugin).collect()
}

fn has_several_ports(members: &Members) -> bool {
    match members {
        Members::All => false,
        Members::Selected { target_ports, .. } => target_ports.len() > 1,
    }
}
