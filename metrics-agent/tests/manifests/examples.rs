//! The example manifests.

use std::path::Path;

use endpoint_picker_wire::NamedRules;
use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::endpoints;
use metrics_agent_sources::manifests;

use crate::reading::options;

/// The folder of the examples.
fn examples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"))
}

#[test]
fn rules_by_name_are_those_of_their_file() {
    let files = manifests::read(&examples().join("choosing/expected-latency.yaml"));
    let of_file = Plan::read(&files.unwrap(), &options()).unwrap();
    let named = |rules| Plan::without_manifests(&Options { rules, ..options() }).pools[0].policy.clone();
    assert_eq!(named(Some(NamedRules::ExpectedLatency)), of_file.pools[0].policy);
    assert_eq!(named(None), of_file.pools[0].policy, "they are the default");
    assert_eq!(named(Some(NamedRules::Epp)).picker_config, None, "the filter's own default");
}

#[test]
fn the_examples_are_valid_and_have_the_documented_effect() {
    let examples = examples().join("manifests");
    let plan = Plan::read(&manifests::read(&examples).unwrap(), &options()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((plan.documents, &plan.warnings[..]), (4, &[][..]));
    let pool = &plan.pools[0];
    let policy = &pool.policy;
    assert_eq!((plan.pools.len(), pool.name.as_str()), (1, "llama"));
    assert_eq!((policy.objectives[0].name.as_str(), policy.objectives[0].priority), ("batch", -10));
    assert_eq!(policy.rewrite_rules[0].models, ["llama"]);
    assert_eq!(policy.picker_config.as_ref().unwrap().profiles[0].plugins.len(), 5);

    let root = examples.join("../..");
    let endpoints = std::fs::read(root.join(plan.endpoints_file.unwrap())).unwrap();
    let found = endpoints::parse(&endpoints).unwrap().endpoints;
    assert_eq!(pool.members.among(&found).len(), found.len(), "each endpoint of the example is the pool's");
}
