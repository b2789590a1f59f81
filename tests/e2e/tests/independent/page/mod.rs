//! The agent's live page, in a real browser.

use endpoint_picker_harness::client;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::{Message, REPORT_FORMAT};
use reqwest::StatusCode;

mod groups;
mod layout;
mod live;
mod older_agent;
mod queue;
mod shared_changes;
mod smooth;
mod table;
mod tiles;

/// Sends a proxy's report on the agent's pool. A proxy is forgotten when it has not reported for a while.
async fn send_report(agent: &Agent, report: Report) {
    let report = Report { format: REPORT_FORMAT, ..report };
    let url = format!("http://{}/v1/pools/default/report", agent.address());
    let post = client::http1().post(url).header("content-type", "application/x-protobuf");
    let response = post.body(report.encode_to_vec()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
}
