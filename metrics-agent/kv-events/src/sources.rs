//! Where a model server publishes its events, by its own description.

use core::fmt;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// Maximum number of data-parallel ranks of a server.
const MAX_RANKS: u16 = 256;

/// Where the events of one data-parallel rank are published. A server without ranks has rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventSource {
    pub(super) rank: u16,
    /// The address of new events.
    pub(super) events: SocketAddr,
    /// The address of replays; `None`: the server has none.
    pub(super) replay: Option<SocketAddr>,
}

/// Why a server has no source of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoSource {
    /// The response is not one of the engine.
    Malformed,
    /// Events are switched off.
    Off,
    /// The endpoint is not one to which the agent may connect.
    Endpoint(String),
}

impl fmt::Display for NoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "the server's description of its events is malformed"),
            Self::Off => write!(f, "the server does not publish events (--kv-events-config)"),
            Self::Endpoint(endpoint) => write!(
                f,
                "the server publishes to {endpoint:?}; allowed is tcp://*:PORT, or its own address in place of the *"
            ),
        }
    }
}

/// Paths of the descriptions, in the order in which they are tried.
pub(super) const PATHS: [(&str, Read); 2] = [("/kv_event_sources", of_vllm), ("/server_info", of_sglang)];

/// Reads the description of the server with this address.
type Read = fn(&[u8], IpAddr) -> Result<Vec<EventSource>, NoSource>;

/// A rank of vLLM's `GET /kv_event_sources`.
#[derive(Deserialize)]
struct VllmRank {
    #[serde(default)]
    publisher: Option<String>,
    endpoint: String,
    #[serde(default)]
    replay_endpoint: Option<String>,
}

fn of_vllm(body: &[u8], server: IpAddr) -> Result<Vec<EventSource>, NoSource> {
    let ranks: BTreeMap<u16, VllmRank> = serde_json::from_slice(body).map_err(|_| NoSource::Malformed)?;
    let ranks = ranks.into_iter().filter(|(_, source)| source.publisher.as_deref() != Some("null"));
    let sources = ranks.take(MAX_RANKS.into()).map(|(number, rank)| {
        let events = address(&rank.endpoint, server)?;
        let replay = rank.replay_endpoint.filter(|endpoint| !endpoint.is_empty());
        let replay = replay.map(|endpoint| address(&endpoint, server)).transpose()?;
        Ok(EventSource { rank: number, events, replay })
    });
    some(sources.collect::<Result<_, _>>()?)
}

/// The part of SGLang's `GET /server_info` about events; absent if they are off.
#[derive(Deserialize)]
struct SglangInfo {
    kv_events: Option<SglangEvents>,
}

#[derive(Deserialize)]
struct SglangEvents {
    endpoint_port_base: u16,
    #[serde(default)]
    replay_endpoint_port_base: Option<u16>,
    #[serde(default)]
    dp_size: Option<u16>,
}

fn of_sglang(body: &[u8], server: IpAddr) -> Result<Vec<EventSource>, NoSource> {
    let info: SglangInfo = serde_json::from_slice(body).map_err(|_| NoSource::Malformed)?;
    let events = info.kv_events.ok_or(NoSource::Off)?;
    let ranks = 0..events.dp_size.unwrap_or(1).min(MAX_RANKS);
    let ranks = ranks.filter_map(|rank| {
        of_ports(server, events.endpoint_port_base, events.replay_endpoint_port_base, rank)
    });
    some(ranks.collect())
}

/// The source of a rank with these ports of rank 0; `None`: there is no such port.
pub(super) fn of_ports(server: IpAddr, events: u16, replay: Option<u16>, rank: u16) -> Option<EventSource> {
    let at = |port: u16| port.checked_add(rank).map(|port| SocketAddr::new(server, port));
    Some(EventSource { rank, events: at(events)?, replay: replay.and_then(at) })
}

fn some(sources: Vec<EventSource>) -> Result<Vec<EventSource>, NoSource> {
    if sources.is_empty() { Err(NoSource::Off) } else { Ok(sources) }
}

/// The address of a ZeroMQ endpoint. Its host must be the server: a server must not lead the agent to others.
fn address(endpoint: &str, server: IpAddr) -> Result<SocketAddr, NoSource> {
    let read = || {
        let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_own = matches!(host, "*" | "0.0.0.0" | "::") || host.parse() == Ok(server);
        let port = port.parse().ok().filter(|port| *port != 0)?;
        is_own.then(|| SocketAddr::new(server, port))
    };
    read().ok_or_else(|| NoSource::Endpoint(endpoint.chars().take(200).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 7));

    fn source(events: u16, replay: Option<u16>) -> EventSource {
        of_ports(SERVER, events, replay, 0).unwrap()
    }

    #[test]
    fn vllm_names_an_endpoint_for_each_rank() {
        let body = br#"{"0": {"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5600", "topic": ""},
                        "1": {"publisher": "zmq", "endpoint": "tcp://10.0.0.7:5558", "replay_endpoint": null}}"#;
        let second = EventSource { rank: 1, ..source(5558, None) };
        assert_eq!(of_vllm(body, SERVER), Ok(vec![source(5557, Some(5600)), second]));
        assert_eq!(of_vllm(b"{}", SERVER), Err(NoSource::Off));
        assert_eq!(
            of_vllm(br#"{"0": {"publisher": "null", "endpoint": "tcp://*:5557"}}"#, SERVER),
            Err(NoSource::Off)
        );
        assert_eq!(of_vllm(br#"{"detail": "Not Found"}"#, SERVER), Err(NoSource::Malformed));
        let captured = include_bytes!("../../tests/captures/kv-events/kv_event_sources.json");
        assert_eq!(of_vllm(captured, SERVER), Err(NoSource::Endpoint("ipc:///run/kv.ipc".to_owned())));
    }

    #[test]
    fn sglang_names_the_ports_of_the_first_rank() {
        let body = br#"{"version": "0.5.23", "kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557,
                        "topic": "", "block_size": 1, "dp_size": 2, "replay_endpoint_port_base": 5600}}"#;
        let second = EventSource { rank: 1, ..source(5558, Some(5601)) };
        assert_eq!(of_sglang(body, SERVER), Ok(vec![source(5557, Some(5600)), second]));
        assert_eq!(of_sglang(br#"{"version": "0.5.23"}"#, SERVER), Err(NoSource::Off));
        assert_eq!(of_sglang(b"no", SERVER), Err(NoSource::Malformed));
        let many = br#"{"kv_events": {"endpoint_port_base": 65000, "dp_size": 65535}}"#;
        assert_eq!(of_sglang(many, SERVER).unwrap().len(), usize::from(MAX_RANKS));
        let beyond = br#"{"kv_events": {"endpoint_port_base": 65535, "dp_size": 2}}"#;
        assert_eq!(of_sglang(beyond, SERVER).unwrap().len(), 1);
    }

    #[test]
    fn a_server_cannot_lead_the_agent_elsewhere() {
        for endpoint in [
            "tcp://10.0.0.8:5557",
            "tcp://127.0.0.1:5557",
            "tcp://collector:5557",
            "ipc:///tmp/x",
            "tcp://*:0",
            "tcp://*:99999",
            "tcp://*",
            "",
        ] {
            let body = format!(r#"{{"0": {{"endpoint": "{endpoint}"}}}}"#);
            assert_eq!(of_vllm(body.as_bytes(), SERVER), Err(NoSource::Endpoint(endpoint.to_owned())));
        }
        assert!(address("tcp://[::]:5557", SERVER).is_ok());
        assert!(address("tcp://[2001:db8::1]:5557", "2001:db8::1".parse().unwrap()).is_ok());
    }
}
