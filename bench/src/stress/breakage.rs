//! How a fault is caused, and how it ends.

use super::fault::Fault;
use super::stack::addresses_without;
use anyhow::Result;
use bytes::Bytes;
use endpoint_picker_harness::objectives;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::StatusCode;
use std::fmt::Write;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How servers answer without a fault: fast, and with some answers in flight at any time.
pub(crate) const NORMAL: Behaviour = Behaviour::SlowChunks(Duration::from_millis(10));

const SLOW_CLIENTS: usize = 200;

/// Neither YAML nor JSON nor metrics.
const GARBAGE: &str = "\u{0}\u{1}{{[[]: - \t% not anything {\"endpoints\": [{\n\"";

/// A fault that lasts.
pub(crate) struct ActiveFault {
    fault: Fault,
    server: usize,
    slow_clients: JoinSet<()>,
}

/// Causes a fault; `server` is the one that it concerns, if it concerns one.
pub(crate) async fn begin(fault: Fault, server: usize, stack: &mut Stack) -> Result<ActiveFault> {
    let mut slow_clients = JoinSet::new();
    let concerned = &stack.servers()[server];
    match fault {
        Fault::ServerKilled => concerned.refuse().await?,
        Fault::ServerHangs => {
            concerned.behave(Behaviour::Hang);
            concerned.behave_when_scraped(Behaviour::Hang);
        }
        Fault::ServerResets => concerned.behave(Behaviour::Reset),
        Fault::ServerSlow => concerned.behave(Behaviour::Pieces(16, Duration::from_millis(2))),
        Fault::ScrapeHangs => concerned.behave_when_scraped(Behaviour::Hang),
        Fault::ScrapeFails => {
            concerned.behave_when_scraped(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
        }
        Fault::MetricsGarbage => concerned.set_metrics_text(Some(Bytes::from_static(GARBAGE.as_bytes()))),
        Fault::MetricsOdd => concerned.set_metrics_text(Some(odd_metrics())),
        Fault::MetricsHuge => concerned.set_metrics_text(Some(huge_metrics())),
        Fault::MetricsSlow => {
            concerned.behave_when_scraped(Behaviour::Pieces(1, Duration::from_millis(10)));
        }
        Fault::AgentKilled => stack.kill_agent(),
        Fault::AgentPaused | Fault::AgentPausedLong => stack.pause_agent(),
        Fault::EndpointsGarbage => stack.set_endpoints_text(GARBAGE)?,
        Fault::ManifestGarbage => stack.set_manifests(GARBAGE),
        Fault::EndpointLeaves => stack.set_endpoints(&addresses_without(stack, server)),
        Fault::ClientsSlow => {
            for _ in 0..SLOW_CLIENTS {
                slow_clients.spawn(send_slowly(stack.envoy().listener()));
            }
        }
        Fault::EnvoyRestarted => stack.hot_restart().await?,
    }
    Ok(ActiveFault { fault, server, slow_clients })
}

impl ActiveFault {
    /// Ends the fault.
    pub(crate) async fn end(mut self, stack: &mut Stack) -> Result<()> {
        let all: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();
        let concerned = &stack.servers()[self.server];
        match self.fault {
            Fault::ServerKilled => concerned.listen()?,
            Fault::AgentKilled => stack.start_agent().await,
            Fault::AgentPaused | Fault::AgentPausedLong => stack.resume_agent(),
            Fault::EndpointsGarbage | Fault::EndpointLeaves => stack.set_endpoints(&all),
            Fault::ManifestGarbage => stack.set_manifests(objectives::MANIFEST),
            Fault::ClientsSlow => self.slow_clients.shutdown().await,
            Fault::EnvoyRestarted => {}
            Fault::ServerHangs
            | Fault::ServerResets
            | Fault::ServerSlow
            | Fault::ScrapeHangs
            | Fault::ScrapeFails
            | Fault::MetricsGarbage
            | Fault::MetricsOdd
            | Fault::MetricsHuge
            | Fault::MetricsSlow => {
                concerned.behave(NORMAL);
                concerned.behave_when_scraped(Behaviour::Answer);
                concerned.set_metrics_text(None);
            }
        }
        Ok(())
    }
}

fn odd_metrics() -> Bytes {
    let values = ["NaN", "+Inf", "-Inf", "-1", "1e308", "18446744073709551616"];
    let mut text = String::new();
    for family in ["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"] {
        for (engine, value) in values.iter().enumerate() {
            writeln!(text, "vllm:{family}{{engine=\"{engine}\"}} {value}").expect("a String does not fail");
        }
    }
    text.push_str("vllm:cache_config_info{block_size=\"-3\",num_gpu_blocks=\"NaN\"} NaN\n");
    text.into()
}

/// About 3 MB, with the families that the agent reads last.
fn huge_metrics() -> Bytes {
    let mut text = String::new();
    for series in 0..100_000 {
        writeln!(text, "some:histogram_bucket{{le=\"{series}\"}} 1").expect("a String does not fail");
    }
    text.push_str("vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n");
    text.into()
}

/// Begins a request and never ends it.
async fn send_slowly(proxy: std::net::SocketAddr) {
    let Ok(mut stream) = TcpStream::connect(proxy).await else { return };
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: slow\r\ncontent-length: 100000\r\n\r\n{\"model\":\"";
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    while stream.write_all(b"m").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
