//! An Envoy that does not follow the picks.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;
use serde_json::{Value, json};

const SERVED_ELSEWHERE: &str = r#"served_elsewhere{pool="default"}"#;

/// The cluster balances by itself; with the wasm filter it has its policy, but gets no metadata.
fn ignore_picks(config: &mut Config) -> anyhow::Result<()> {
    match config.filter() {
        Filter::Wasm => config.remove_filter("destination-metadata"),
        Filter::Native => {
            let r#type =
                "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
            let policy = json!({"name": "round-robin", "typed_config": {"@type": r#type}});
            config.document()["static_resources"]["clusters"][0]["load_balancing_policy"] =
                json!({"policies": [{"typed_extension_config": policy}]});
            Ok(())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn picks_that_envoy_does_not_follow_are_counted_and_reported_and_their_cause_is_logged_once() {
    let stack = Stack::builder().change(ignore_picks).start().await;
    let counted = async |more_than: u64| {
        eventually("requests are served elsewhere", async || {
            assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
            let count = statistics(&stack).await.count(SERVED_ELSEWHERE);
            if count > more_than { Ok(count) } else { Err(count) }
        })
        .await
    };
    let logged = || stack.envoy().log().unwrap().matches("does not follow the picks").count();
    let mut count = counted(0).await;
    // The worker that logs looks at the counts of all once a second, and begins with those that it finds.
    for _ in 0..20 {
        if logged() == 0 {
            count = counted(count).await;
        }
    }
    count = counted(counted(count).await).await;
    assert_eq!(logged(), 1);
    let url = format!("http://{}/v1/pools/default", stack.agent_address());
    eventually("the agent has the count", async || {
        let status: Value = client::http1().get(&url).send().await?.json().await?;
        let reported = status["proxies"][0]["served_elsewhere"].as_u64();
        anyhow::ensure!(reported >= Some(count), "{status}");
        anyhow::Ok(())
    })
    .await;
}
