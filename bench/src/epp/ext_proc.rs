//! How Envoy reaches the EPP: the `ext_proc` filter and its cluster.

use serde_json::{Value, json};

/// Name of the EPP's cluster.
pub const CLUSTER: &str = "epp";

/// The filter as the EPP recommends it without Kubernetes, with the metadata that carries the subset hint and
/// the choice.
pub fn filter() -> Value {
    json!({
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": CLUSTER}, "timeout": "10s"},
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

/// The cluster of an EPP that listens on this port.
pub fn cluster(port: u16) -> Value {
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    json!({
        "name": CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        // As in the EPP's chart; Envoy's own are below what a loaded proxy has in flight.
        "circuit_breakers": {
            "thresholds": [{"max_connections": 40_000, "max_pending_requests": 40_000, "max_requests": 40_000}],
        },
        "load_assignment": {
            "cluster_name": CLUSTER,
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
