//! Changes to a shipped configuration: filters, routes and clusters.

use super::document::{http_filters, replace, text};
use super::file::{Config, PICKER};
use super::picker::{self, set_field};
use crate::Filter;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

impl Config {
    /// Sets the module of all endpoint pickers.
    pub fn set_picker_module(&mut self, module: &Path) -> Result<()> {
        let count = replace(&mut self.document, &self.filter.shipped_path().into(), &text(module)?.into());
        ensure!(count > 0, "the configuration has no endpoint picker");
        // A filter that only the native module has, next to a picker in wasm.
        let native = Filter::Native.shipped_path();
        if self.filter == Filter::Wasm && self.document.to_string().contains(native) {
            replace(&mut self.document, &native.into(), &text(&Filter::Native.module()?)?.into());
        }
        Ok(())
    }

    /// The endpoint picker among the HTTP filters.
    pub fn picker(&mut self) -> Result<&mut Value> {
        let at = self.picker_position()?;
        self.http_filters()?.get_mut(at).context("an HTTP filter")
    }

    /// Removes this function from the capabilities: neither Envoy nor the picker calls it.
    pub fn shut(&mut self, function: &str) -> Result<()> {
        let at = self.picker_position()?;
        let picker = &mut self.http_filters()?[at]["typed_config"]["config"];
        let allowed = picker["capability_restriction_config"]["allowed_capabilities"].as_object_mut();
        let was_allowed = allowed.and_then(|allowed| allowed.remove(function));
        was_allowed.map(drop).with_context(|| format!("{function} is not among the allowed capabilities"))
    }

    /// Sets the time within which a request must have come whole.
    pub fn set_request_timeout(&mut self, limit: Duration) -> Result<()> {
        self.connection_manager()?["request_timeout"] = format!("{}s", limit.as_secs_f64()).into();
        Ok(())
    }

    /// Passes paths on as clients write them.
    pub fn remove_path_normalization(&mut self) -> Result<()> {
        let manager = self.connection_manager()?.as_object_mut().context("an HTTP connection manager")?;
        for field in ["normalize_path", "merge_slashes", "path_with_escaped_slashes_action"] {
            manager.remove(field).with_context(|| format!("the configuration has no {field}"))?;
        }
        Ok(())
    }

    /// Inserts `filter` right before the endpoint picker.
    pub fn insert_before_picker(&mut self, filter: Value) -> Result<()> {
        let at = self.picker_position()?;
        self.http_filters()?.insert(at, filter);
        Ok(())
    }

    /// Removes the HTTP filter of this name.
    pub fn remove_filter(&mut self, name: &str) -> Result<()> {
        let filters = self.http_filters()?;
        let at = filters.iter().position(|filter| filter["name"] == name);
        filters.remove(at.with_context(|| format!("there is no filter {name}"))?);
        Ok(())
    }

    /// Removes the endpoint picker, and lets clients set its header.
    pub fn remove_picker(&mut self) -> Result<()> {
        let at = self.picker_position()?;
        self.http_filters()?.remove(at);
        let manager = self.connection_manager()?.as_object_mut().context("a connection manager")?;
        let strips = manager.remove("early_header_mutation_extensions");
        strips.map(drop).context("the configuration takes no headers away")
    }

    /// Sets how often a request is tried again.
    pub fn set_retries(&mut self, retries: u32) -> Result<()> {
        let route = self.connection_manager()?.pointer_mut("/route_config/virtual_hosts/0/routes/0/route");
        let policy = route.and_then(|route| route.pointer_mut("/retry_policy"));
        policy.context("the route has no retry policy")?["num_retries"] = retries.into();
        Ok(())
    }

    /// Adds an endpoint picker for another pool, which gets the requests whose path begins with
    /// `path_prefix`; servers see the path without it.
    pub fn add_pool(&mut self, pool: &str, path_prefix: &str) -> Result<()> {
        let at = self.picker_position()?;
        let mut picker = self.http_filters()?[at].clone();
        let name = format!("{PICKER}-{pool}");
        picker["name"] = name.as_str().into();
        set_field(&mut picker, "pool", pool.into())?;
        self.http_filters()?.insert(at, picker);

        self.routes()?[0]["typed_per_filter_config"] = disabled(&name);
        self.add_route(path_prefix, disabled(PICKER))
    }

    /// Adds the endpoint picker once more, right behind itself.
    pub fn repeat_picker(&mut self) -> Result<()> {
        let at = self.picker_position()?;
        let mut picker = self.http_filters()?[at].clone();
        picker["name"] = format!("{PICKER}-again").into();
        self.http_filters()?.insert(at + 1, picker);
        Ok(())
    }

    /// Adds a route without the endpoint picker, for the requests whose path begins with `path_prefix`;
    /// servers see the path without it.
    pub fn add_route_without_picker(&mut self, path_prefix: &str) -> Result<()> {
        self.add_route(path_prefix, disabled(PICKER))
    }

    /// Adds a route like the last one, with its own configuration of filters.
    fn add_route(&mut self, path_prefix: &str, filters: Value) -> Result<()> {
        let routes = self.routes()?;
        let mut route = routes.last().context("the configuration has no route")?.clone();
        route["typed_per_filter_config"] = filters;
        route["match"]["prefix"] = path_prefix.into();
        route["route"]["prefix_rewrite"] = "/".into();
        routes.insert(0, route);
        Ok(())
    }

    /// Sets a field of the endpoint picker's own configuration, which is JSON in a string.
    pub fn set_picker_field(&mut self, field: &str, value: Value) -> Result<()> {
        let at = self.picker_position()?;
        set_field(&mut self.http_filters()?[at], field, value)
    }

    /// Has the endpoint picker take these endpoints in place of the agent's.
    pub fn list_endpoints(&mut self, endpoints: &[SocketAddr]) -> Result<()> {
        picker::list_endpoints(self.picker()?, endpoints)
    }

    /// Lets the wasm pickers reach the agent through this cluster, in place of the shipped way.
    pub fn replace_agent_cluster(&mut self, cluster: Value) -> Result<()> {
        let name = cluster["name"].clone();
        for picker in picker::all_of(self.http_filters()?) {
            set_field(picker, "agentCluster", name.clone())?;
        }
        let clusters = self.document["static_resources"]["clusters"].as_array_mut();
        let clusters = clusters.context("the configuration has no clusters")?;
        clusters.retain(|shipped| shipped["name"] != name);
        clusters.push(cluster);
        Ok(())
    }

    /// Lets clients open a tunnel by `CONNECT`.
    pub fn accept_connect(&mut self) -> Result<()> {
        let upgrade = serde_json::json!({"upgrade_type": "CONNECT"});
        let manager = self.connection_manager()?;
        let upgrades = manager["upgrade_configs"].as_array_mut();
        upgrades.context("the configuration has no upgrades")?.push(upgrade);
        let routes = manager["route_config"]["virtual_hosts"][0]["routes"].as_array_mut();
        let routes = routes.context("the configuration has no routes where they are expected")?;
        let mut route = routes[0].clone();
        route["match"] = serde_json::json!({"connect_matcher": {}});
        routes.insert(0, route);
        Ok(())
    }

    fn http_filters(&mut self) -> Result<&mut Vec<Value>> {
        http_filters(self.connection_manager()?)
    }

    fn routes(&mut self) -> Result<&mut Vec<Value>> {
        let routes = self.connection_manager()?["route_config"]["virtual_hosts"][0]["routes"].as_array_mut();
        routes.context("the configuration has no routes where they are expected")
    }

    fn picker_position(&mut self) -> Result<usize> {
        let position = self.http_filters()?.iter().position(|filter| filter["name"] == PICKER);
        position.with_context(|| format!("the configuration has no HTTP filter {PICKER}"))
    }
}

/// A route's configuration that disables a filter.
fn disabled(filter: &str) -> Value {
    serde_json::json!({filter: {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
        "disabled": true,
    }})
}
