//! The privileges that the programs need.

use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::process_tree;
use endpoint_picker_harness::stack::Stack;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set};

/// Programs that this thread starts from now on have no capability, also when root runs the test.
fn give_up_capabilities() {
    if !geteuid().is_root() {
        return;
    }
    for capability in CapabilitySet::all().iter() {
        // The set has some that an older kernel lacks.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability).unwrap();
        }
    }
}

// On one thread, because programs inherit from the thread that starts them.
#[tokio::test(flavor = "current_thread")]
async fn neither_envoy_nor_the_agent_needs_a_capability() {
    give_up_capabilities();
    let stack = Stack::builder().with_shipped_access_log().start().await;
    let (envoy, agent) = (stack.envoy(), stack.agent().unwrap());
    let started = [envoy.process_id(), agent.process_id()];
    for process in started.into_iter().flat_map(|process| process_tree::processes(process).unwrap()) {
        for set in ["CapPrm", "CapEff"] {
            let held = process_tree::status(process, set).unwrap();
            assert_eq!(u64::from_str_radix(&held, 16), Ok(0), "{set} of process {process}: {held}");
        }
    }

    let path = "/v1/chat/completions?without-capabilities";
    let response = stack.post(path, &client::chat("hello")).await;
    assert!(response.status().is_success(), "{response:?}");
    stack.served_by(&response);
    eventually("the request is in the access log, on Envoy's standard output", async || {
        let output = envoy.log().map_err(|reason| reason.to_string())?;
        if output.contains(path) { Ok(()) } else { Err(output) }
    })
    .await;
}
