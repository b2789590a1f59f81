//! The proxies through which streams are held.

use super::clients::STREAMS_OF_CONNECTION;
use crate::epp::variant::Variant;
use anyhow::{Context, Result};
use endpoint_picker_bench::epp::ext_proc;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::Config;
use serde_json::{Value, json};
use std::fmt;

/// Files that a process has open in addition to the connections of streams: libraries, logs, idle
/// connections.
const OTHER_FILES: usize = 500;

const SERVERS_PROTOCOL: &str = "/static_resources/clusters/0/typed_extension_protocol_options/\
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicit_http_config";

/// Envoy with one of the pickers, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldProxy {
    Bare,
    Filter(Filter),
    Epp(CircuitBreakers),
}

/// The circuit breakers of Envoy's cluster of the EPP. Each request is a stream there for as long as its
/// response lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitBreakers {
    /// Envoy's own, if a cluster names none: 1 024 requests.
    Default,
    /// 40 000 requests.
    Raised,
}

/// The protocol between Envoy and the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerProtocol {
    /// A connection for each stream, as to vLLM and SGLang.
    Http1,
    /// Some streams on each connection.
    Http2,
}

impl HeldProxy {
    pub(crate) const ALL: [Self; 5] = [
        Self::Bare,
        Self::Filter(Filter::Native),
        Self::Filter(Filter::Wasm),
        Self::Epp(CircuitBreakers::Default),
        Self::Epp(CircuitBreakers::Raised),
    ];

    pub(super) fn variant(self) -> Variant {
        match self {
            Self::Bare => Variant::NoPicker,
            Self::Filter(filter) => Variant::Filter(filter),
            Self::Epp(_) => Variant::Epp,
        }
    }

    /// The changes to the variant's configuration.
    pub(super) fn change(self, config: &mut Config, protocol: ServerProtocol) -> Result<()> {
        if self == Self::Epp(CircuitBreakers::Default) {
            let clusters = config.document()["static_resources"]["clusters"].as_array_mut();
            let mut clusters = clusters.context("clusters")?.iter_mut().filter_map(Value::as_object_mut);
            let cluster =
                clusters.find(|cluster| cluster.get("name").is_some_and(|it| it == ext_proc::CLUSTER));
            cluster.context("the EPP's cluster")?.remove("circuit_breakers").context("circuit breakers")?;
        }
        if protocol == ServerProtocol::Http2 {
            let options = config.document().pointer_mut(SERVERS_PROTOCOL);
            *options.context("the servers' protocol")? = json!({"http2_protocol_options": {}});
        }
        Ok(())
    }
}

impl ServerProtocol {
    /// HTTP/1.1 if a process may have a file for each stream.
    pub(super) fn of(streams: usize, open_files: usize) -> Self {
        let needed = streams + streams / STREAMS_OF_CONNECTION + OTHER_FILES;
        if needed <= open_files { Self::Http1 } else { Self::Http2 }
    }
}

impl fmt::Display for HeldProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare => f.write_str("bare"),
            Self::Filter(filter) => filter.fmt(f),
            Self::Epp(CircuitBreakers::Default) => f.write_str("EPP, Envoy's default circuit breakers"),
            Self::Epp(CircuitBreakers::Raised) => f.write_str("EPP, circuit breakers of 40 000"),
        }
    }
}

impl fmt::Display for ServerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}
