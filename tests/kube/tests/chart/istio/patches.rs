//! Patches of an `EnvoyFilter`, applied to a gateway's Envoy configuration as Istio's control plane applies
//! them (read in its source, 1.31).

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// In the order in which Istio applies them: in a listener, the filter of a chain before the HTTP filters in
/// it.
const KINDS: [&str; 5] = ["CLUSTER", "LISTENER", "NETWORK_FILTER", "HTTP_FILTER", "HTTP_ROUTE"];
const MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// Applies the patches that the chart uses. Others, and patches that match nothing, are errors.
pub(super) fn apply(patches: &[Value], config: &mut Value) -> Result<()> {
    for kind in KINDS {
        for patch in patches.iter().filter(|patch| patch["applyTo"] == kind) {
            apply_one(kind, patch, &mut config["static_resources"]).with_context(|| patch.to_string())?;
        }
    }
    let unknown = patches.iter().find(|patch| KINDS.iter().all(|kind| patch["applyTo"] != *kind));
    ensure!(unknown.is_none(), "unknown patch {unknown:?}");
    Ok(())
}

fn apply_one(kind: &str, patch: &Value, resources: &mut Value) -> Result<()> {
    ensure!(patch["match"]["context"] == "GATEWAY", "it is not for gateways");
    ensure!(!patch.to_string().contains(r#""config":{}"#), "Istio refuses an Any without a type");
    let operation = patch["patch"]["operation"].as_str().context("an operation")?;
    let value = &patch["patch"]["value"];
    let listener = &mut resources["listeners"][0];
    match (kind, operation) {
        ("CLUSTER", "ADD") => resources["clusters"].as_array_mut().context("clusters")?.push(value.clone()),
        ("LISTENER", "MERGE") => merge(listener, value),
        ("NETWORK_FILTER", "MERGE") => {
            let matched = &patch["match"]["listener"]["filterChain"]["filter"]["name"];
            let filter = &mut listener["filter_chains"][0]["filters"][0];
            ensure!(filter["name"] == *matched, "no such filter");
            merge(&mut filter["typed_config"], &value["typed_config"]);
        }
        ("HTTP_FILTER", "INSERT_BEFORE") => {
            let matched = &patch["match"]["listener"]["filterChain"]["filter"];
            ensure!(matched["name"] == MANAGER, "it is in no connection manager");
            let filters = &mut listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
            let filters = filters.as_array_mut().context("HTTP filters")?;
            let before = filters.iter().position(|filter| filter["name"] == matched["subFilter"]["name"]);
            filters.insert(before.context("no such HTTP filter")?, value.clone());
        }
        ("HTTP_ROUTE", "MERGE") => {
            let matched = &patch["match"]["routeConfiguration"]["vhost"]["route"]["name"];
            let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
            let routes = manager["route_config"]["virtual_hosts"][0]["routes"].as_array_mut();
            let route = routes.into_iter().flatten().find(|route| route["name"] == *matched);
            merge(route.context("no such route")?, value);
        }
        other => bail!("unknown patch {other:?}"),
    }
    Ok(())
}

/// Merges messages as Istio does: fields one by one, lists by appending, and entries of the map of settings
/// of filters by replacing.
fn merge(into: &mut Value, value: &Value) {
    match (into, value) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, value) in fields {
                merge_field(into, name, value);
            }
        }
        (Value::Array(into), Value::Array(items)) => into.extend(items.iter().cloned()),
        (into, value) => *into = value.clone(),
    }
}

fn merge_field(into: &mut Map<String, Value>, name: &str, value: &Value) {
    let place = into.entry(name).or_insert(Value::Null);
    match (name, place, value) {
        ("typed_per_filter_config", Value::Object(settings), Value::Object(values)) => {
            settings.extend(values.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        (_, place, value) => merge(place, value),
    }
}
