//! Servers that show no queue although they have work.

use endpoint_picker_wire::NamedRules;
use metrics_agent::agent::Settings;
use metrics_agent_catalogue::Options;
use serde_json::Value;

use crate::harness::{Agent, eventually, options_for, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// The endpoint's field `unseen_queue`.
async fn unseen_queue(agent: &Agent) -> Option<Value> {
    let status: Value = serde_json::from_str(&agent.get("/v1/pools/default").await.text()).ok()?;
    let queue = status["endpoints"][0].get("unseen_queue")?;
    Some(queue.clone())
}

#[tokio::test]
async fn a_server_that_shows_no_queue_is_named_until_a_request_waits_there() {
    let server = ScriptedServer::start(Behaviour::Text(load(0, 6))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let queue = eventually("an unseen queue", async || unseen_queue(&agent).await).await;
    assert!(queue["busy_readings"].as_u64().unwrap() >= 100, "{queue}");
    assert_eq!((&queue["most_running"], &queue["is_reported"]), (&6.into(), &true.into()));
    assert_eq!(queue["scorers"], serde_json::json!(["queue-scorer"]), "the EPP's rules");

    server.set_behaviour(Behaviour::Text(load(1, 6)));
    eventually("a queue", async || unseen_queue(&agent).await.is_none().then_some(())).await;
    server.set_behaviour(Behaviour::Text(load(0, 6)));
    agent.reading_where("no queue again", |reading| reading.waiting == Some(0)).await;
    assert_eq!(unseen_queue(&agent).await, None, "it was seen");
}

#[tokio::test]
async fn a_server_without_a_metric_of_its_queue_is_named_and_the_recommended_rules_do_not_go_by_it() {
    let text = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 4\n";
    let server = ScriptedServer::start(Behaviour::Text(text.to_owned())).await;
    let options = Options { rules: Some(NamedRules::ExpectedLatency), ..options_for("default") };
    let agent = Agent::start(Settings { options, ..scraping(&[server.address()]) }).await;
    let queue = eventually("an unseen queue", async || unseen_queue(&agent).await).await;
    assert_eq!((&queue["most_running"], &queue["is_reported"]), (&4.into(), &false.into()));
    assert_eq!(queue["scorers"], serde_json::json!([]));
}
