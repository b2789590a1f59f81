//! A cluster of the agent that has no endpoint, as before its name can be resolved, and one that does not
//! exist: Envoy refuses every call.

use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use serde_json::json;

const FAILED: &str = r#"snapshot_failures{pool="default"}"#;
const LOGGED: &str = "no snapshot: ";

#[tokio::test(flavor = "multi_thread")]
async fn polls_that_envoy_refuses_are_counted_each_and_logged_once() {
    let agent = json!({"name": "metrics-agent", "type": "STATIC", "connect_timeout": "1s"});
    let stack = Stack::builder().workers(1).without_agent().agent_cluster(agent).start().await;
    eventually("five polls have failed", async || match statistics(&stack).await.count(FAILED) {
        polls if polls >= 5 => Ok(()),
        polls => Err(polls),
    })
    .await;
    let log = stack.envoy().log().unwrap();
    assert_eq!(log.matches(LOGGED).count(), 1, "{log}");
    assert!(
        log.contains(
            "no snapshot: the agent did not answer: its cluster \"metrics-agent\" has no healthy endpoint"
        ),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_exist_is_named() {
    let stack =
        Stack::builder().workers(1).without_agent().picker_field("agentCluster", "agnet").start().await;
    eventually("the log names the cluster", async || {
        let log = stack.envoy().log()?;
        let expected = r#"no snapshot: the proxy has no cluster "agnet" (agentCluster)"#;
        anyhow::ensure!(log.contains(expected), "{log}");
        anyhow::Ok(())
    })
    .await;
}
