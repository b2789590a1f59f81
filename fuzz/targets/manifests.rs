//! Manifests: whatever the agent takes, the filter can run.
#![no_main]

use core::time::Duration;
use std::path::Path;

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::{pipeline_into_core, policy_into_core};
use libfuzzer_sys::fuzz_target;
use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::manifests::File;

fuzz_target!(|input: &[u8]| {
    let file = File { path: Path::new("m.yaml").into(), bytes: input.to_vec() };
    let options = Options {
        allow_experimental_plugins: true,
        default_pool: "default".to_owned(),
        emit_endpoint_scores: false,
        neutral_score_after: None,
        avoid_failing: Duration::ZERO,
        epp_rules: EppRules::V011,
        rules: None,
    };
    match Plan::read(&[file], &options) {
        Ok(plan) => {
            for mut pool in plan.pools {
                pipeline_into_core(&mut pool.policy).expect("the agent has checked it");
                policy_into_core(pool.policy);
            }
        }
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
});
