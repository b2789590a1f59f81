//! The native form of a configuration that is written for the wasm filter.
//!
//! The module needs fewer settings: it labels its statistics, raises its buffer limit, writes the metadata
//! that `header_to_metadata` copies for the wasm filter, and polls the agent itself.

use super::document::{connection_manager_of, http_filters};
use super::picker;
use crate::Filter;
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The picker's header, and the key of its copy in the metadata, which steers a request.
const DESTINATION: &str = "x-gateway-destination-endpoint";
const STEERING_NAMESPACE: &str = "envoy.lb";

/// Headers in which only the wasm filter passes metadata on.
const HELPER_HEADERS: [&str; 3] =
    ["x-gateway-destination-endpoint-scores", "x-endpoint-picker-explanation", "x-endpoint-picker-fallback"];

/// Converts a whole configuration.
pub(super) fn to_native(document: &mut Value) -> Result<()> {
    let fields = document.as_object_mut().context("a configuration")?;
    fields.remove("stats_config");
    let strips_prefix = json!({"envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix": true});
    let layers = json!({"layers": [{"name": "statistics", "static_layer": strips_prefix}]});
    fields.insert("layered_runtime".into(), layers);

    let resources = &mut document["static_resources"];
    let mut clusters = resources["clusters"].take();
    let mut agents = Vec::new();
    for listener in resources["listeners"].as_array_mut().context("listeners")? {
        listener.as_object_mut().context("a listener")?.remove("per_connection_buffer_limit_bytes");
        let manager = connection_manager_of(listener)?;
        agents.extend(convert_filters(http_filters(manager)?, &clusters)?);
        keep_early_mutation_of_destination(manager);
    }
    clusters.as_array_mut().context("clusters")?.retain(|cluster| !agents.contains(&cluster["name"]));
    resources["clusters"] = clusters;
    Ok(())
}

/// Converts the pickers among these HTTP filters, and the filters that copy their headers. Returns the names
/// of the agents' clusters, which pickers no longer need.
fn convert_filters(filters: &mut Vec<Value>, clusters: &Value) -> Result<Vec<Value>> {
    let mut agents = Vec::new();
    for picker in filters.iter_mut().filter(|filter| picker::is_wasm(filter)) {
        agents.extend(convert_picker(picker, clusters)?);
    }

    let mut takes_one_endpoint = false;
    for rules in filters.iter_mut().filter_map(|filter| filter.pointer_mut("/typed_config/request_rules")) {
        let rules = rules.as_array_mut().context("rules")?;
        takes_one_endpoint |= rules.iter().any(|rule| steers(rule) && is_rewritten(rule));
        rules.retain(|rule| !steers(rule) && !HELPER_HEADERS.iter().any(|header| rule["header"] == *header));
    }
    filters.retain(|filter| {
        filter
            .pointer("/typed_config/request_rules")
            .and_then(Value::as_array)
            .is_none_or(|rules| !rules.is_empty())
    });
    if takes_one_endpoint {
        for picker in picker::all_of(filters) {
            picker::set_field(picker, "steering", "overrideHost".into())?;
        }
    }
    Ok(agents)
}

/// Converts a picker; returns the name of the agent's cluster, if there is an agent: the picker no longer
/// needs it.
fn convert_picker(picker: &mut Value, clusters: &Value) -> Result<Option<Value>> {
    let mut fields = picker::fields(picker)?;
    let by_name = fields.as_object_mut().context("a configuration of the picker")?;
    let name = by_name.remove("agentCluster");
    if let Some(name) = &name {
        let cluster = clusters.as_array().into_iter().flatten().find(|cluster| cluster["name"] == *name);
        by_name.insert("agent".into(), agent_of(cluster.context("no cluster of the agent")?)?);
    } else {
        by_name
            .get("endpoints")
            .context("the endpoint picker has neither a cluster of the agent nor endpoints")?;
    }
    picker["typed_config"] = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
        "dynamic_module_config": {
            "module": {"local": {"filename": Filter::Native.shipped_path()}},
            "do_not_close": true,
        },
        "filter_name": "endpoint-picker",
        "filter_config": {
            "@type": "type.googleapis.com/google.protobuf.StringValue",
            "value": fields.to_string(),
        },
    });
    Ok(name)
}

/// The field `agent` that takes the place of a cluster: its addresses, and the files of its TLS. The file of
/// the token has another format than Envoy's.
fn agent_of(cluster: &Value) -> Result<Value> {
    let tls = cluster.pointer("/transport_socket/typed_config/common_tls_context");
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut agent = json!({"addresses": addresses_of(cluster, scheme)?});
    if let Some(tls) = tls {
        let file = |pointer: &str| tls.pointer(pointer).cloned().with_context(|| format!("no {pointer}"));
        agent["tls"] = json!({
            "caFile": file("/validation_context/trusted_ca/filename")?,
            "certFile": file("/tls_certificates/0/certificate_chain/filename")?,
            "keyFile": file("/tls_certificates/0/private_key/filename")?,
        });
        agent["tokenFile"] = "/etc/endpoint-picker/token".into();
    }
    Ok(agent)
}

/// The URLs of a cluster's addresses.
fn addresses_of(cluster: &Value, scheme: &str) -> Result<Vec<String>> {
    let localities = cluster["load_assignment"]["endpoints"].as_array();
    let endpoints =
        localities.into_iter().flatten().filter_map(|locality| locality["lb_endpoints"].as_array());
    let addresses = endpoints.flatten().map(|endpoint| {
        let address = endpoint.pointer("/endpoint/address/socket_address").context("an address")?;
        let (ip, port) = (address["address"].as_str(), address["port_value"].as_u64());
        let (ip, port) = ip.zip(port).context("an address and a port")?;
        Ok(format!("{scheme}://{ip}:{port}"))
    });
    addresses.collect()
}

/// Whether a rule writes what the module writes itself.
fn steers(rule: &Value) -> bool {
    let target = &rule["on_header_present"];
    rule["header"] == DESTINATION
        && target["metadata_namespace"] == STEERING_NAMESPACE
        && target["key"] == DESTINATION
}

fn is_rewritten(rule: &Value) -> bool {
    rule["on_header_present"].get("regex_value_rewrite").is_some()
}

/// Leaves only the header that servers and the access log read.
fn keep_early_mutation_of_destination(manager: &mut Value) {
    let extensions = manager["early_header_mutation_extensions"].as_array_mut();
    for mutations in
        extensions.into_iter().flatten().filter_map(|it| it.pointer_mut("/typed_config/mutations"))
    {
        if let Some(mutations) = mutations.as_array_mut() {
            mutations.retain(|mutation| !HELPER_HEADERS.iter().any(|header| mutation["remove"] == *header));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::examples;
    use super::super::file::shipped;
    use super::*;

    /// The picker's own configuration is JSON in a string.
    fn with_parsed_strings(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(with_parsed_strings),
            Value::Object(fields) => fields.values_mut().for_each(with_parsed_strings),
            Value::String(text) => {
                if let Ok(parsed @ Value::Object(_)) = serde_json::from_str(text) {
                    *value = parsed;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn converted(path: &str) -> Value {
        let mut document = shipped(path).unwrap();
        to_native(&mut document).unwrap();
        with_parsed_strings(&mut document);
        document
    }

    #[test]
    fn the_native_form_of_envoy_yaml_is_envoy_native_yaml() {
        let mut native = shipped("envoy-native.yaml").unwrap();
        with_parsed_strings(&mut native);
        let converted = converted("envoy.yaml");
        assert_eq!(
            serde_json::to_string_pretty(&converted).unwrap(),
            serde_json::to_string_pretty(&native).unwrap()
        );
    }

    #[test]
    fn nothing_of_the_wasm_filter_is_left_in_the_native_form_of_an_example() {
        let names = examples().unwrap();
        assert!(names.len() >= 6, "{names:?}");
        for name in names {
            let text = converted(&format!("examples/{name}")).to_string();
            for word in ["wasm", "vm_config", "stats_tags", "x-endpoint-picker-", "per_connection"] {
                assert!(!text.contains(word), "{name} has {word}: {text}");
            }
        }
    }

    #[test]
    fn addresses_and_files_take_the_place_of_the_agents_cluster() {
        for (name, agent) in [
            ("subset", r#""agent":{"addresses":["http://127.0.0.1:9095"]}"#),
            ("spare-agent", r#""agent":{"addresses":["http://127.0.0.1:9095","http://127.0.0.1:9096"]}"#),
            (
                "secured-agent",
                r#""agent":{"addresses":["https://127.0.0.1:9095"],"tls":{"caFile":"/etc/endpoint-picker/ca.pem","certFile":"/etc/endpoint-picker/envoy.pem","keyFile":"/etc/endpoint-picker/envoy.key"},"tokenFile":"/etc/endpoint-picker/token"}"#,
            ),
        ] {
            let text = converted(&format!("examples/{name}")).to_string();
            assert!(text.contains(agent), "{name}: {text}");
            assert!(!text.contains("agentCluster") && !text.contains(r#""name":"metrics-agent""#), "{text}");
        }
    }

    #[test]
    fn a_balancer_that_takes_one_endpoint_gets_it_as_override_host_and_a_rule_of_ones_own_stays() {
        let subset = converted("examples/subset").to_string();
        assert!(
            subset.contains(r#""steering":"overrideHost""#) && !subset.contains("request_rules"),
            "{subset}"
        );
        let original_dst = converted("examples/original-dst").to_string();
        assert!(
            !original_dst.contains("steering") && original_dst.contains("first-endpoint"),
            "{original_dst}"
        );
    }

    #[test]
    fn both_pools_are_converted() {
        let pools = converted("examples/two-pools").to_string();
        assert_eq!(pools.matches(r#""addresses":["http://127.0.0.1:9095"]"#).count(), 2, "{pools}");
        assert!(!pools.contains(r#""name":"metrics-agent""#), "{pools}");
    }
}
