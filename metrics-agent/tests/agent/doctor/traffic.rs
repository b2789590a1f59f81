//! Counts of requests since Envoy's start.

use metrics_agent_doctor::doctor::Severity::{Error, Warning};
use serde_json::{Value, json};

use super::fixture::{ENDPOINTS, Recorded};

const SERVERS: &str = "model-servers";

/// Sets counters of hosts of the model servers' cluster, from the first host on.
fn set_hosts(envoy: &mut Recorded, counters: &[&[(&str, u64)]]) {
    for (host, counters) in envoy.hosts(SERVERS).iter_mut().zip(counters) {
        let counters = counters.iter().map(|(name, value)| json!({"name": name, "value": value.to_string()}));
        host["stats"] = counters.collect();
    }
}

/// Sets the responses of the model servers' cluster by status.
fn set_responses(envoy: &mut Recorded, responses: &[(u16, u64)]) {
    envoy.statistics.retain(|line| !line.starts_with("cluster.model-servers.upstream_rq_"));
    let lines =
        responses.iter().map(|(status, count)| format!("cluster.{SERVERS}.upstream_rq_{status}: {count}"));
    envoy.statistics.extend(lines);
}

fn set_options(envoy: &mut Recorded, options: &Value) {
    let all = &mut envoy.cluster(SERVERS)["typed_extension_protocol_options"];
    all["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["explicit_http_config"] = options.clone();
}

#[test]
fn all_servers_fail_and_the_text_has_the_transport() {
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"},
    });
    let raw = json!({
        "name": "envoy.transport_sockets.raw_buffer",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"},
    });
    let (http1, http2) = (json!({"http_protocol_options": {}}), json!({"http2_protocol_options": {}}));
    for (options, socket, transport) in [
        (&http2, None, "HTTP/2 without TLS"),
        (&http2, Some(&raw), "HTTP/2 without TLS"),
        (&http1, Some(&tls), "HTTP/1.1 over TLS"),
        (&http1, None, "HTTP/1.1 without TLS"),
    ] {
        let mut envoy = Recorded::wasm();
        set_options(&mut envoy, options);
        if let Some(socket) = socket {
            envoy.cluster(SERVERS)["transport_socket"] = socket.clone();
        }
        set_hosts(
            &mut envoy,
            &[&[("rq_total", 4), ("rq_error", 4)], &[("cx_total", 3), ("cx_connect_fail", 3)]],
        );
        set_responses(&mut envoy, &[(503, 4)]);
        let [first, second] = ENDPOINTS;
        let problem = format!(
            "no request has succeeded at 2 hosts of the cluster, to which Envoy speaks {transport}: {first}, {second}"
        );
        envoy.assert_finds(Error, &problem, "cluster model-servers", "http2_protocol_options");
        let line = "pool default since Envoy's start: 6 routed, 0 left to Envoy, rejected: none; responses of its clusters: 0 below 500, 4 of \
                    500 and above\n";
        assert!(envoy.diagnose().to_string().contains(line), "{}", envoy.diagnose());
    }
}

#[test]
fn one_server_of_several_fails() {
    let mut envoy = Recorded::native();
    set_hosts(
        &mut envoy,
        &[&[("cx_total", 2), ("cx_connect_fail", 2), ("rq_error", 2)], &[("rq_total", 4), ("rq_success", 4)]],
    );
    let problem = "no request has succeeded at 1 host of the cluster, to which Envoy speaks HTTP/1.1 without TLS: 127.0.0.1:18001";
    envoy.assert_finds(Warning, problem, "cluster model-servers", "targetPorts");
    // One that has failed and served is avoided for a while, as it should be.
    set_hosts(&mut envoy, &[&[("cx_total", 2), ("cx_connect_fail", 2), ("rq_error", 2), ("rq_success", 1)]]);
    envoy.assert_is_ok();
}

#[test]
fn all_responses_are_errors_although_no_host_shows_it() {
    let mut envoy = Recorded::native();
    set_responses(&mut envoy, &[(503, 7), (504, 1)]);
    let problem = "all responses of the cluster are errors: 503 (7), 504 (1)";
    envoy.assert_finds(Error, problem, "cluster model-servers", "access log");
    set_responses(&mut envoy, &[(503, 7), (200, 1)]);
    envoy.assert_is_ok();
}

#[test]
fn all_requests_are_rejected() {
    for (mut envoy, rejected) in [
        (Recorded::wasm(), "wasmcustom.endpoint_picker.default.rejected|404: "),
        (Recorded::native(), "dynamicmodulescustom.endpoint_picker.rejected.pool.default.status.404: "),
    ] {
        let line = envoy.statistics.iter_mut().find(|line| line.starts_with(rejected)).unwrap();
        *line = format!("{rejected}9");
        let summary = "6 routed, 0 left to Envoy, rejected: 404 (9); responses of its clusters: 6 below 500, 0 of 500 and above\n";
        let report = envoy.assert_is_ok();
        assert!(report.to_string().contains(summary), "{report}");
        envoy.set_statistic("routed", 0);
        let problem = "the filter has rejected all requests: 404 (9)";
        envoy.assert_finds(Warning, problem, "pool default", "x-llm-d-request-dropped-reason");
    }
}

#[test]
fn endpoints_that_are_not_ready() {
    const REFUSED: &str = "cannot connect: connection refused";
    let mut envoy = Recorded::wasm();
    envoy.reason = Some(REFUSED);
    envoy.pools.get_mut("default").unwrap()[1].1 = "not_ready";
    let problem = format!("the endpoint has never been ready: {REFUSED}");
    envoy.assert_finds(Warning, &problem, "endpoint 127.0.0.1:18002", "targetPorts");
    let report = envoy.diagnose();
    assert!(!report.passed().contains(&"endpoints are ready"), "{report}");

    envoy.pools.get_mut("default").unwrap()[0].1 = "not_ready";
    let problem =
        format!("none of 2 endpoints of the pool is ready: requests get 503. 127.0.0.1:18001: {REFUSED}");
    envoy.assert_finds(Error, &problem, "pool default", "targetPorts");

    // A server that was read before has ended.
    let mut envoy = Recorded::wasm();
    envoy.age_ms = Some(9_000);
    envoy.pools.get_mut("default").unwrap()[1].1 = "not_ready";
    envoy.assert_is_ok();
}
