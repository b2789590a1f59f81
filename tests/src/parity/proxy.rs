//! One Envoy, two listeners: the shipped one, and a copy of it with the EPP in our filter's place.

use crate::config::{Config, PICKER, Places};
use crate::envoy::Envoy;
use crate::{subset_hint, tools};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// Name of the EPP's listener and of its cluster.
pub(crate) const REFERENCE: &str = "reference";

/// Header of an answer with the scores that the EPP told Envoy.
pub(super) const SCORES: &str = "x-test-scores";

/// The configuration of both listeners.
pub(super) fn config(folder: &Path, agent_port: u16, reference_port: u16) -> Result<Config> {
    let places = Places { port: 0, admin_port: 0, agent_port, folder };
    let mut config = Config::shipped("envoy.yaml", places)?;
    config.set_picker_module(&tools::filter_wasm()?)?;
    config.insert_before_picker(subset_hint::filter())?;
    let resources = &mut config.document()["static_resources"];
    let listeners = resources["listeners"].as_array_mut().context("listeners")?;
    let copy = reference_listener(listeners[0].clone())?;
    listeners.push(copy);
    resources["clusters"].as_array_mut().context("clusters")?.push(reference_cluster(reference_port));
    Ok(config)
}

/// Where clients connect: for our filter, and for the EPP.
pub(super) async fn listeners(envoy: &Envoy) -> Result<(SocketAddr, SocketAddr)> {
    let listeners: Value = serde_json::from_str(&envoy.admin_text("/listeners?format=json").await?)?;
    let of = |name: &str| {
        let all = listeners["listener_statuses"].as_array()?;
        let address = &all.iter().find(|status| status["name"] == name)?["local_address"]["socket_address"];
        format!("{}:{}", address["address"].as_str()?, address["port_value"].as_u64()?).parse().ok()
    };
    of("inference").zip(of(REFERENCE)).with_context(|| format!("two listeners in {listeners}"))
}

fn reference_listener(mut listener: Value) -> Result<Value> {
    listener["name"] = REFERENCE.into();
    let manager = listener.pointer_mut("/filter_chains/0/filters/0/typed_config").context("a manager")?;
    let filters = manager["http_filters"].as_array_mut().context("HTTP filters")?;
    let picker = filters.iter_mut().find(|filter| filter["name"] == PICKER).context("our filter")?;
    *picker = external_processor();
    // The EPP writes the metadata itself.
    filters.retain(|filter| filter["name"] != "destination-metadata");
    let host = manager.pointer_mut("/route_config/virtual_hosts/0").context("a virtual host")?;
    host["response_headers_to_add"] = json!([{
        "header": {
            "key": SCORES,
            "value": "%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint-scores)%",
        },
    }]);
    Ok(listener)
}

/// As the EPP recommends where it runs without Kubernetes, and with the metadata in which it is told the subset and tells
/// its choice.
pub(crate) fn external_processor() -> Value {
    json!({
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": REFERENCE}, "timeout": "10s"},
            "message_timeout": "600s",
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "FULL_DUPLEX_STREAMED",
                "request_trailer_mode": "SEND",
                "response_header_mode": "SEND",
                "response_body_mode": "FULL_DUPLEX_STREAMED",
                "response_trailer_mode": "SEND",
            },
            "metadata_options": {
                "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
                "receiving_namespaces": {"untyped": ["envoy.lb"]},
            },
        },
    })
}

/// Where the EPP listens.
pub(crate) fn reference_cluster(port: u16) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    json!({
        "name": REFERENCE,
        "type": "STATIC",
        "connect_timeout": "1s",
        // As in the EPP's chart; Envoy's own are below what a loaded proxy has in flight.
        "circuit_breakers": {
            "thresholds": [{"max_connections": 40_000, "max_pending_requests": 40_000, "max_requests": 40_000}],
        },
        "load_assignment": {
            "cluster_name": REFERENCE,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
    })
}
