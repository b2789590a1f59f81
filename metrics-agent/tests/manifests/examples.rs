//! The example manifests.

use std::path::Path;

use metrics_agent_catalogue::Plan;
use metrics_agent_sources::endpoints::{self, LabelLimits};
use metrics_agent_sources::manifests;
use metrics_agent_support::files::FileLimits;

use crate::reading::options;

#[test]
fn the_examples_are_valid_and_have_the_documented_effect() {
    let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/manifests"));
    let plan = Plan::read(&manifests::read(examples, FileLimits::default()).unwrap(), &options())
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((plan.documents, &plan.warnings[..]), (4, &[][..]));
    let pool = &plan.pools[0];
    let policy = &pool.policy;
    assert_eq!((plan.pools.len(), pool.name.as_str()), (1, "llama"));
    assert_eq!((policy.objectives[0].name.as_str(), policy.objectives[0].priority), ("batch", -10));
    assert_eq!(policy.rewrite_rules[0].models, ["llama"]);
    assert_eq!(policy.picker_config.as_ref().unwrap().profiles[0].plugins.len(), 5);

    let root = examples.join("../..");
    let endpoints = std::fs::read(root.join(plan.endpoints_file.unwrap())).unwrap();
    let found =
        endpoints::parse(&endpoints, FileLimits::default(), LabelLimits::default()).unwrap().endpoints;
    assert_eq!(pool.members.among(&found).len(), found.len(), "each endpoint of the example is the pool's");
}
