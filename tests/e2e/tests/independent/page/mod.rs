//! The agent's live page, in a real browser.

use endpoint_picker_harness::client;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_model_server::ModelServer;
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::{Message, REPORT_FORMAT};
use reqwest::StatusCode;
use tempfile::TempDir;

mod groups;
mod layout;
mod live;
mod older_agent;
mod queue;
mod shared_changes;
mod smooth;
mod table;
mod tiles;

/// An agent with one model server, and a browser that has not opened the agent's page yet.
struct Watched {
    agent: Agent,
    browser: Browser,
    _server: ModelServer,
    _logs: TempDir,
}

impl Watched {
    async fn start() -> Self {
        let server = ModelServer::start().unwrap();
        let logs = TempDir::new().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let flags = ["--endpoint".to_owned(), server.endpoint()];
        let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
        let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
        Self { agent, browser, _server: server, _logs: logs }
    }
}

/// Sends a proxy's report on the agent's pool. A proxy is forgotten when it has not reported for a while.
async fn send_report(agent: &Agent, report: Report) {
    let report = Report { format: REPORT_FORMAT, ..report };
    let url = format!("http://{}/v1/pools/default/report", agent.address());
    let post = client::http1().post(url).header("content-type", "application/x-protobuf");
    let response = post.body(report.encode_to_vec()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
}
