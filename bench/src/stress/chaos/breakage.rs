//! How a fault is caused, and how it ends.

use super::fault::Fault;
use crate::stress::proxies::Proxies;
use anyhow::Result;
use bytes::Bytes;
use endpoint_picker_model_server::Behaviour;
use reqwest::StatusCode;
use rustix::process::Signal;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const SLOW_CLIENTS: usize = 200;

/// Neither YAML nor JSON nor metrics.
const GARBAGE: &str = "\u{0}\u{1}{{[[]: - \t% not anything {\"endpoints\": [{\n\"";

/// Scope of a fault, as far as it concerns a server or a proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) server: usize,
    pub(crate) proxy: usize,
}

/// A fault that lasts.
pub(crate) struct ActiveFault {
    fault: Fault,
    place: Place,
    slow_clients: JoinSet<()>,
}

/// Causes a fault.
pub(crate) async fn begin(fault: Fault, place: Place, proxies: &mut Proxies) -> Result<ActiveFault> {
    let mut slow_clients = JoinSet::new();
    let Place { server, proxy } = place;
    let concerned = &proxies.servers()[server];
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
        Fault::AgentKilled => proxies.stack(proxy).kill_agent(),
        Fault::AgentPaused | Fault::AgentPausedLong => proxies.stack(proxy).pause_agent(),
        Fault::EndpointsGarbage => proxies.stack(proxy).set_endpoints_text(GARBAGE)?,
        Fault::ManifestGarbage => proxies.stack(proxy).set_manifests(GARBAGE),
        Fault::EndpointLeaves => set_endpoints(proxies, &proxies.addresses_without(server)),
        Fault::ClientsSlow => {
            let listener = proxies.stack(proxy).envoy().listener();
            for _ in 0..SLOW_CLIENTS {
                slow_clients.spawn(send_slowly(listener));
            }
        }
        Fault::EnvoyRestarted => proxies.stack(proxy).hot_restart().await?,
        Fault::ProxyKilled => proxies.kill(proxy),
        Fault::StoreKilled => proxies.store()?.kill(),
        Fault::StorePaused => proxies.store()?.signal(Signal::STOP),
        Fault::StoreFull => proxies.store()?.set_full(true).await?,
        Fault::StoreUnreachable => proxies.set_reaches_store(proxy, false)?,
    }
    Ok(ActiveFault { fault, place, slow_clients })
}

impl ActiveFault {
    /// Ends the fault.
    pub(crate) async fn end(mut self, proxies: &mut Proxies) -> Result<()> {
        let Place { server, proxy } = self.place;
        match self.fault {
            Fault::ServerKilled => proxies.servers()[server].listen()?,
            Fault::AgentKilled => proxies.stack(proxy).start_agent().await,
            Fault::AgentPaused | Fault::AgentPausedLong => proxies.stack(proxy).resume_agent(),
            Fault::EndpointsGarbage | Fault::EndpointLeaves => set_endpoints(proxies, &proxies.addresses()),
            Fault::ManifestGarbage => {
                proxies.stacks()[proxy].set_manifests(&proxies.calm().manifests);
            }
            Fault::ClientsSlow => self.slow_clients.shutdown().await,
            Fault::EnvoyRestarted => {}
            Fault::ProxyKilled => proxies.restart(proxy).await?,
            Fault::StoreKilled => proxies.store()?.restart().await?,
            Fault::StorePaused => proxies.store()?.signal(Signal::CONT),
            Fault::StoreFull => proxies.store()?.set_full(false).await?,
            Fault::StoreUnreachable => proxies.set_reaches_store(proxy, true)?,
            Fault::ServerHangs
            | Fault::ServerResets
            | Fault::ServerSlow
            | Fault::ScrapeHangs
            | Fault::ScrapeFails
            | Fault::MetricsGarbage
            | Fault::MetricsOdd
            | Fault::MetricsHuge
            | Fault::MetricsSlow => {
                let concerned = &proxies.servers()[server];
                concerned.behave(proxies.calm().behaviour);
                concerned.behave_when_scraped(Behaviour::Answer);
                concerned.set_metrics_text(None);
            }
        }
        Ok(())
    }
}

/// Replaces the endpoints of every agent.
fn set_endpoints(proxies: &Proxies, endpoints: &[SocketAddr]) {
    for stack in proxies.stacks() {
        stack.set_endpoints(endpoints);
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
async fn send_slowly(proxy: SocketAddr) {
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
