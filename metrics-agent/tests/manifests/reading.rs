//! Plans, refusals and warnings from the text of manifests.

use core::time::Duration;
use std::path::Path;

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::{NamedRules, v1};
use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::manifests::File;

pub(crate) fn options() -> Options {
    Options {
        allow_experimental_plugins: false,
        default_pool: "default".to_owned(),
        emit_endpoint_scores: false,
        neutral_score_after: None,
        avoid_failing: Duration::ZERO,
        epp_rules: EppRules::default(),
        rules: Some(NamedRules::Epp),
    }
}

pub(crate) fn file(name: &str, text: &str) -> File {
    File { path: Path::new(name).into(), bytes: text.as_bytes().to_vec() }
}

pub(crate) fn plan(text: &str) -> Plan {
    Plan::read(&[file("m.yaml", text)], &options()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The one pool's policy.
pub(crate) fn policy(text: &str) -> v1::Policy {
    let mut plan = plan(text);
    assert_eq!(plan.pools.len(), 1);
    plan.pools.remove(0).policy
}

/// All problems, one per line, without the file's name.
pub(crate) fn refusal(text: &str) -> String {
    let problems = Plan::read(&[file("m.yaml", text)], &options()).expect_err(text).to_string();
    problems.replace("m.yaml: ", "")
}

pub(crate) fn warnings(text: &str) -> Vec<String> {
    plan(text).warnings.iter().map(ToString::to_string).collect()
}

/// A pool `p` of the endpoints with the label `app: a`.
pub(crate) const POOL: &str = "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: p}
spec: {selector: {matchLabels: {app: a}}, targetPorts: [{number: 8000}]}
---";

/// A configuration with these fields.
pub(crate) fn config(body: &str) -> String {
    format!("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{body}")
}

/// An `InferenceModelRewrite` for the pool `p`.
pub(crate) fn rewrite(metadata: &str, rules: &str) -> String {
    format!(
        "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {{{metadata}}}
spec: {{poolRef: {{name: p}}, rules: [{rules}]}}
---"
    )
}

/// Warnings without their place in the file.
pub(crate) fn warned(text: &str) -> Vec<String> {
    let place = "m.yaml: document 1: ";
    warnings(text).iter().map(|warning| warning.strip_prefix(place).unwrap().to_owned()).collect()
}

/// The plan of a configuration with experimental plugins, or why it is refused.
pub(crate) fn experimental(text: &str) -> Result<Plan, String> {
    let options = Options { allow_experimental_plugins: true, ..options() };
    Plan::read(&[file("m.yaml", text)], &options).map_err(|problems| problems.to_string())
}
