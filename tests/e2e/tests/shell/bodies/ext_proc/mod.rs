//! An `ext_proc` filter behind the picker gets every byte of a body.

mod processor;

use anyhow::{Context, Result};
use bytes::Bytes;
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, forget_requests};
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use futures_util::stream;
use processor::Processor;
use reqwest::{Body, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;

const KIB: usize = 1024;
const PROCESSOR_PORT: &str = "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address\
                              /socket_address/port_value";

/// Puts the filter right before the router, and its cluster before the others.
fn add_processor(config: &mut Config) -> Result<()> {
    let filter = json!({
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "processor"}},
            "message_timeout": "60s",
            "processing_mode": {
                "request_body_mode": "FULL_DUPLEX_STREAMED",
                "request_trailer_mode": "SEND",
                "response_header_mode": "SKIP",
            },
        },
    });
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": 1}});
    let cluster = json!({
        "name": "processor",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "processor",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
    });
    let document = config.document();
    let clusters = document["static_resources"]["clusters"].as_array_mut();
    clusters.context("clusters")?.insert(0, cluster);
    let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
    let filters = document.pointer_mut(filters).and_then(Value::as_array_mut).context("HTTP filters")?;
    filters.insert(filters.len() - 1, filter);
    Ok(())
}

/// A body whose bytes differ by their position.
fn body(size: usize) -> String {
    let numbers: Vec<_> = (0..size / 8).map(|number| format!("{number:07}")).collect();
    let text = numbers.join(" ");
    json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_processor_behind_the_picker_gets_every_byte_of_a_long_body() {
    let processor = Processor::start().await;
    let builder = Stack::builder().change(add_processor).value_at(PROCESSOR_PORT, processor.port());
    let stack = builder.start().await;
    forget_requests(&stack);
    processor.take_body_bytes();
    // Held at once, held in chunks, and streamed after a part has been held.
    for size in [KIB, 40 * KIB, 300 * KIB, 3000 * KIB] {
        for chunk in [KIB, 16 * KIB, 100 * KIB].into_iter().filter(|chunk| *chunk <= size) {
            let body = Bytes::from(body(size));
            let chunks: Vec<_> =
                body.chunks(chunk).map(|chunk| Ok::<_, Infallible>(body.slice_ref(chunk))).collect();
            let request = client::http1().post(stack.url(CHAT)).body(Body::wrap_stream(stream::iter(chunks)));
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{size} bytes in chunks of {chunk}");
            let received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
            assert_eq!(received.len(), 1);
            assert_eq!(processor.take_body_bytes(), body.len(), "sent in chunks of {chunk}");
            let (sent, arrived) = (body.len(), received[0].body.len());
            assert!(received[0].body == body, "{arrived} of {sent} bytes arrived, sent in chunks of {chunk}");
            assert!(received[0].header(DESTINATION).is_some());
        }
    }
}
