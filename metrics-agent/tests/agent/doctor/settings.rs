//! Settings of Envoy that are missing, or are its defaults, each by itself.

use metrics_agent_doctor::doctor::Severity::{Error, Warning};
use serde_json::{Value, json};

use super::configuration::module_cluster;
use super::fixture::{Recorded, remove};

const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

fn options(envoy: &mut Recorded) -> &mut Value {
    &mut envoy.cluster("model-servers")["typed_extension_protocol_options"][OPTIONS]
}

fn wasm_settings(envoy: &mut Recorded) -> &mut Value {
    &mut envoy.filters()[0]["typed_config"]["config"]
}

#[test]
fn a_route_with_envoys_timeout() {
    let mut envoy = Recorded::native();
    remove(&mut envoy.routes()[0]["route"], "timeout");
    let problem = "the route has no timeout, so Envoy's holds: a response of more than 15 s ends with 504";
    envoy.assert_finds(Warning, problem, "route prefix /", "set timeout: 0s and idle_timeout: 900s");
    envoy.routes()[0]["route"]["timeout"] = "600s".into();
    envoy.assert_is_ok();
}

#[test]
fn idle_connections_that_the_servers_close_first() {
    let fix = "common_http_protocol_options: {idle_timeout: 4s}";
    for (timeout, open) in
        [(None, "for 3600 s"), (Some("4.001s"), "for 4.001 s"), (Some("0s"), "without limit")]
    {
        let mut envoy = Recorded::wasm();
        let common = &mut options(&mut envoy)["common_http_protocol_options"];
        *common = timeout.map_or_else(|| json!({}), |timeout| json!({"idle_timeout": timeout}));
        let problem = format!(
            "idle connections to the servers stay open {open}: vLLM and SGLang close theirs after 5 s"
        );
        envoy.assert_finds(Warning, &problem, "cluster model-servers", fix);
        // HTTP/2 has a message for the end of a connection.
        options(&mut envoy)["explicit_http_config"] = json!({"http2_protocol_options": {}});
        envoy.assert_is_ok();
    }
    // The older place of the setting.
    let mut envoy = Recorded::wasm();
    remove(envoy.cluster("model-servers"), "typed_extension_protocol_options");
    envoy.assert_finds(Warning, "stay open for 3600 s", "cluster model-servers", fix);
    envoy.cluster("model-servers")["common_http_protocol_options"] = json!({"idle_timeout": "3s"});
    envoy.assert_is_ok();
}

#[test]
fn circuit_breakers_with_envoys_defaults() {
    let mut envoy = Recorded::wasm();
    let breakers = remove(envoy.cluster("model-servers"), "circuit_breakers");
    let all = "circuit breakers have Envoy's defaults (max_connections, max_pending_requests, max_requests, max_retries)";
    envoy.assert_finds(Warning, all, "cluster model-servers", "max_retries: 1024");
    // Those of another priority.
    let mut high = breakers.clone();
    high["thresholds"][0]["priority"] = "HIGH".into();
    envoy.cluster("model-servers")["circuit_breakers"] = high;
    envoy.assert_finds(Warning, all, "cluster model-servers", "max_retries: 1024");
    let mut without_retries = breakers;
    remove(&mut without_retries["thresholds"][0], "max_retries");
    envoy.cluster("model-servers")["circuit_breakers"] = without_retries;
    envoy.assert_finds(Warning, "Envoy's defaults (max_retries)", "cluster model-servers", "");
    envoy.cluster("model-servers")["circuit_breakers"]["thresholds"][0]["retry_budget"] = json!({});
    envoy.assert_is_ok();
}

#[test]
fn retries_that_may_meet_the_same_server() {
    let mut envoy = Recorded::native();
    remove(&mut envoy.routes()[0]["route"]["retry_policy"], "retry_host_predicate");
    let problem = "the route's retry policy has no retry_host_predicate";
    envoy.assert_finds(Warning, problem, "route prefix /", "envoy.retry_host_predicates.previous_hosts");
    // Its own balancer knows which hosts a request has tried.
    envoy.set_picker("steering", "cluster".into());
    *envoy.cluster("model-servers") = module_cluster("default");
    envoy.assert_is_ok();
}

#[test]
fn a_fallback_that_leaves_subset_hints() {
    let hint = json!({
        "name": "hint",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{"header": "x-hint", "on_header_present": {
                "metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset"}}],
        },
    });
    let round_robin = json!({"policies": [{"typed_extension_config": {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
    }}]});
    let policy = "/load_balancing_policy/policies/0/typed_extension_config/typed_config/fallback_policy";
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        let shipped = envoy.cluster("model-servers").pointer(policy).unwrap().clone();
        *envoy.cluster("model-servers").pointer_mut(policy).unwrap() = round_robin.clone();
        // Without a filter that sets hints there are none.
        envoy.assert_is_ok();
        envoy.filters().insert(0, hint.clone());
        let problem = "a request whose hinted endpoints fail leaves its subset hint";
        envoy.assert_finds(Error, problem, "cluster model-servers", "keys: [endpoint-picker-fallback]");
        *envoy.cluster("model-servers").pointer_mut(policy).unwrap() = shipped;
        let report = envoy.assert_is_ok();
        assert!(report.passed().contains(&"requests stay in their subset hint"), "{report}");
    }
    // The wasm filter needs the copy of its mark, too.
    let mut envoy = Recorded::wasm();
    let rules = envoy.filters()[1]["typed_config"]["request_rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["header"] != "x-endpoint-picker-fallback");
    envoy.filters().insert(0, hint);
    let fix = "add the request rule header: x-endpoint-picker-fallback";
    envoy.assert_finds(Error, "no filter copies the picker's mark", "cluster model-servers", fix);
}

#[test]
fn a_shadow_before_the_picker_that_it_shadows() {
    let epp = json!({
        "name": "epp",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor"},
    });
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        envoy.set_picker("mode", "shadow".into());
        envoy.filters().insert(1, epp.clone());
        envoy.assert_finds(
            Warning,
            "the filter that shadows runs before epp, and does not see its choice: no request is compared",
            "route prefix /",
            "move the filter behind epp",
        );
        envoy.filters().swap(0, 1);
        envoy.assert_is_ok();
    }
    let mut envoy = Recorded::native();
    envoy.set_picker("mode", "shadow".into());
    envoy.set_statistic("shadow_not_compared", 60);
    let problem = "has compared none of 60 requests: it found no choice of another picker";
    envoy.assert_finds(Warning, problem, "pool default", "behind the other picker");
    envoy.set_statistic("shadow_agreed", 1);
    envoy.assert_is_ok();
}

#[test]
fn functions_that_the_wasm_filter_may_not_call() {
    let mut envoy = Recorded::wasm();
    let restriction = remove(wasm_settings(&mut envoy), "capability_restriction_config");
    // Without a restriction all are allowed.
    envoy.assert_is_ok();
    for place in ["", "vm_config"] {
        let mut envoy = envoy.clone();
        let settings = wasm_settings(&mut envoy);
        let settings = if place.is_empty() { settings } else { &mut settings[place] };
        settings["capability_restriction_config"] = restriction.clone();
        envoy.set_statistic("snapshots", 1);
        envoy.assert_is_ok();
        let settings = wasm_settings(&mut envoy);
        let settings = if place.is_empty() { settings } else { &mut settings[place] };
        remove(&mut settings["capability_restriction_config"]["allowed_capabilities"], "proxy_http_call");
        // The filter has never reached the agent, which is not a mistake of its own.
        envoy.set_statistic("snapshots", 0);
        let problem = "allowed_capabilities lacks proxy_http_call, which the filter needs";
        envoy.assert_finds(Error, problem, "HTTP filter endpoint-picker", "capability_restriction_config");
    }
}

#[test]
fn a_worker_that_stays_without_picker_after_a_trap() {
    let mut envoy = Recorded::wasm();
    let problem = "failure_policy is FAIL_OPEN: after a trap the worker's requests pass without the picker";
    wasm_settings(&mut envoy)["failure_policy"] = "FAIL_OPEN".into();
    envoy.assert_finds(Warning, problem, "HTTP filter endpoint-picker", "failure_policy: FAIL_RELOAD");
    remove(wasm_settings(&mut envoy), "failure_policy");
    envoy.assert_finds(Warning, "the worker responds with 503", "HTTP filter endpoint-picker", "FAIL_RELOAD");
    wasm_settings(&mut envoy)["fail_open"] = true.into();
    envoy.assert_finds(Warning, problem, "HTTP filter endpoint-picker", "FAIL_RELOAD");
}

#[test]
fn statistics_without_labels() {
    let mut envoy = Recorded::wasm();
    remove(&mut envoy.section("bootstrap")["bootstrap"], "stats_config");
    let problem = "stats_config has no stats_tags of the filter";
    envoy.assert_finds(Warning, problem, "HTTP filter endpoint-picker", "copy stats_config of envoy.yaml");
    // The statistics of a gateway are its control plane's.
    super::control_planes::dynamic(envoy).assert_is_ok();
}

#[test]
fn metadata_under_another_name() {
    let sources =
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config/override_host_sources";
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        let key = &mut envoy.cluster("model-servers").pointer_mut(sources).unwrap()[0]["metadata"]["key"];
        *key = "envoy.lbs".into();
        envoy.assert_finds(
            Error,
            "the cluster reads the metadata envoy.lbs / x-gateway-destination-endpoint, and the picker's choice is in envoy.lb",
            "cluster model-servers",
            "let the cluster read the metadata envoy.lb / x-gateway-destination-endpoint",
        );
    }
}
