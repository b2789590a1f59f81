//! Two agents for one proxy.

use anyhow::ensure;
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer};
use endpoint_picker_e2e::statistics::{ROUTED_STALE, complete_statistics, statistics};
use endpoint_picker_harness::client;
use endpoint_picker_harness::endpoint_files::write_discovery;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::ModelServer;
use reqwest::StatusCode;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const EXAMPLE: &str = "examples/spare-agent/differences.yaml";
const SHIPPED_PORTS: [&str; 2] = ["9095", "9096"];

/// Minimum time between two polls of the filter.
const POLL_EVERY: Duration = Duration::from_millis(20);

struct Fixture {
    stack: Stack,
    agents: [Agent; 2],
    folder: TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_discovery(&folder.path().join("endpoints.yaml"), &[]).unwrap();
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let agents = [start_agent(&folder, any_port, 0).await, start_agent(&folder, any_port, 1).await];
        let mut differences = fs::read_to_string(tools::root().join(EXAMPLE)).unwrap();
        for (agent, shipped) in agents.iter().zip(SHIPPED_PORTS) {
            let port = agent.address().port().to_string();
            differences =
                differences.replace(&format!("port_value: {shipped}"), &format!("port_value: {port}"));
        }
        let differences: Value = serde_saphyr::from_str(&differences).unwrap();
        let cluster = differences[0]["value"].clone();
        let stack = Stack::builder().own_agent(agents[0].address()).agent_cluster(cluster).start().await;
        let servers: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();
        write_discovery(&folder.path().join("endpoints.yaml"), &servers).unwrap();
        // Until both have read the file, the filter gets the pool with and without endpoints in turns.
        for agent in &agents {
            until_agent_has(agent, servers.len()).await;
        }
        stack.wait_until_picking().await;
        Self { stack, agents, folder }
    }

    /// Waits until the filter has counted more snapshots than these; gives their number.
    async fn snapshots_after(&self, before: u64) -> u64 {
        eventually("the filter counts more snapshots", async || {
            let count = statistics(&self.stack).await.count(r#"snapshots{pool="default"}"#);
            if count > before { Ok(count) } else { Err(count) }
        })
        .await
    }

    /// How often a worker has taken over endpoints and policy.
    fn topologies(&self) -> usize {
        self.stack.envoy().log().unwrap().matches("pool default has 3 endpoints").count()
    }
}

async fn start_agent(folder: &TempDir, listen: SocketAddr, number: usize) -> Agent {
    let endpoints = folder.path().join("endpoints.yaml");
    let flags = ["--endpoints-file".as_ref(), endpoints.as_os_str()];
    Agent::start(listen, flags, &folder.path().join(format!("agent-{number}.log"))).await.unwrap()
}

async fn until_agent_has(agent: &Agent, endpoints: usize) {
    let url = format!("http://{}/v1/pools/default", agent.address());
    eventually("the agent has the endpoints", async || {
        let status: Value = client::http1().get(&url).send().await?.json().await?;
        let count = status["endpoints"].as_array().map_or(0, Vec::len);
        ensure!(count == endpoints, "it has {count}");
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_are_polled_no_faster_than_one() {
    const SNAPSHOTS: u64 = 200;
    let fixture = Fixture::start().await;
    prefer(&fixture.stack, 0).await;
    // Counts change once a second: from one change to another.
    let before = fixture.snapshots_after(fixture.snapshots_after(0).await).await;
    let begin = Instant::now();
    let topologies = fixture.topologies();
    assert!(topologies > 0, "the log has none");
    let count = fixture.snapshots_after(before + SNAPSHOTS).await - before;
    let took = begin.elapsed();
    eprintln!("{:.0} snapshots/s with two agents", count as f64 / took.as_secs_f64());
    assert!(took >= POLL_EVERY * u32::try_from(count).unwrap() * 9 / 10, "{count} came within {took:?}");
    assert_eq!(fixture.topologies(), topologies, "equal agents have equal versions");
}

/// Polls that an agent has answered.
async fn polls(agent: &Agent) -> u64 {
    let text = client::http1().get(format!("http://{}/metrics", agent.address())).send().await.unwrap();
    let text = text.text().await.unwrap();
    let counts = text.lines().filter(|line| line.starts_with("metrics_agent_snapshots_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_two_ready_agents_is_polled() {
    const SNAPSHOTS: u64 = 40;
    let fixture = Fixture::start().await;
    let [first, second] = &fixture.agents;
    // Health checks find one agent before the other.
    eventually("all polls go to one agent", async || {
        let before = (polls(first).await, polls(second).await);
        fixture.snapshots_after(fixture.snapshots_after(0).await + SNAPSHOTS).await;
        let polled = (polls(first).await > before.0, polls(second).await > before.1);
        ensure!(polled.0 != polled.1, "polled are {polled:?}");
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn either_of_two_agents_can_be_killed() {
    let mut fixture = Fixture::start().await;
    for killed in [0, 1] {
        prefer(&fixture.stack, 0).await;
        fixture.agents[killed].kill();
        for _ in 0..50 {
            let answer = client::http1().post(fixture.stack.url(CHAT)).json(&fresh_chat()).send().await;
            assert_eq!(answer.unwrap().status(), StatusCode::OK);
        }
        prefer(&fixture.stack, 1).await;
        prefer(&fixture.stack, 2).await;
        let address = fixture.agents[killed].address();
        fixture.agents[killed] = start_agent(&fixture.folder, address, killed).await;
    }
    assert_eq!(complete_statistics(&fixture.stack).await.count(ROUTED_STALE), 0);
}
