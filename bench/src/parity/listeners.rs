//! One Envoy, two listeners: the shipped one, and a copy of it with the EPP in our filter's place.

use crate::epp::ext_proc;
use anyhow::{Context, Result};
use endpoint_picker_harness::config::{Config, PICKER, Places};
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::{Filter, subset_hint};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// Header of a response with the scores from the picker's metadata.
pub(crate) const SCORES: &str = "x-test-scores";

/// Header of a response with the number of servers that Envoy tried.
pub(crate) const ATTEMPTS: &str = "x-test-attempts";

/// The configuration of both listeners.
pub(crate) fn config(folder: &Path, agent_port: u16, epp_port: u16) -> Result<Config> {
    let places = Places { port: 0, admin_port: 0, agent_port, folder };
    let filter = Filter::chosen()?;
    let mut config = Config::shipped("envoy.yaml", filter, places)?;
    config.set_picker_module(&filter.module()?)?;
    config.insert_before_picker(subset_hint::filter())?;
    let resources = &mut config.document()["static_resources"];
    let listeners = resources["listeners"].as_array_mut().context("listeners")?;
    virtual_host(&mut listeners[0])?["response_headers_to_add"] = json!([
        header(ATTEMPTS, "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"),
        header(SCORES, "%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint-scores)%"),
    ]);
    let copy = epp_listener(listeners[0].clone())?;
    listeners.push(copy);
    let clusters = resources["clusters"].as_array_mut().context("clusters")?;
    clusters.push(ext_proc::cluster(epp_port));
    for cluster in clusters {
        // An Envoy that gets no processor for a second would send the request to another server.
        cluster["connect_timeout"] = "60s".into();
    }
    Ok(config)
}

/// Where clients connect: for our filter, and for the EPP.
pub(crate) async fn addresses(envoy: &Envoy) -> Result<(SocketAddr, SocketAddr)> {
    Ok((envoy.listener_named("inference").await?, envoy.listener_named(ext_proc::CLUSTER).await?))
}

fn epp_listener(mut listener: Value) -> Result<Value> {
    listener["name"] = ext_proc::CLUSTER.into();
    let manager = listener.pointer_mut("/filter_chains/0/filters/0/typed_config").context("a manager")?;
    let filters = manager["http_filters"].as_array_mut().context("HTTP filters")?;
    let picker = filters.iter_mut().find(|filter| filter["name"] == PICKER).context("our filter")?;
    *picker = ext_proc::filter();
    // The EPP writes the metadata itself.
    filters.retain(|filter| filter["name"] != "destination-metadata");
    Ok(listener)
}

fn header(key: &str, value: &str) -> Value {
    json!({"header": {"key": key, "value": value}})
}

fn virtual_host(listener: &mut Value) -> Result<&mut Value> {
    let host = "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";
    listener.pointer_mut(host).context("a virtual host")
}
