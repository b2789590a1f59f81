//! The shipped Envoy configuration with other ports and paths in it, and with filters put in or left out.

use crate::tools;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Name of the endpoint picker among the HTTP filters.
pub const PICKER: &str = "endpoint-picker";

/// Envoy's access log, where it is to be a file; see [`Config::log_to`].
pub const ACCESS_LOG: &str = "access.log";
const FILE_ACCESS_LOG: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// The folder Envoy watches for its endpoints, in the folder of [`Places`].
pub const EDS_FOLDER: &str = "eds";
/// Envoy's endpoints, in the folder of [`Places`].
pub const EDS_FILE: &str = "eds/model-servers.yaml";

/// An Envoy configuration.
#[derive(Clone, Debug)]
pub struct Config(Value);

/// Where one Envoy listens, on loopback, and where its files are.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Port for clients; 0 for a free one.
    pub port: u16,
    /// Port of the admin interface; 0 for a free one.
    pub admin_port: u16,
    /// The agent's port.
    pub agent_port: u16,
    /// Folder of the endpoints.
    pub folder: &'a Path,
}

impl Config {
    /// Reads a shipped file and puts it in its place; `path` is relative to the repository's root.
    pub fn shipped(path: &str, places: Places<'_>) -> Result<Self> {
        let file = tools::root().join(path);
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let mut config =
            Self(serde_saphyr::from_str(&text).with_context(|| format!("parse {}", file.display()))?);
        config.place(places).with_context(|| format!("adapt {}", file.display()))?;
        Ok(config)
    }

    fn place(&mut self, places: Places<'_>) -> Result<()> {
        self.replace_once(10000, places.port)?;
        self.replace_once(9901, places.admin_port)?;
        self.replace_once(9095, places.agent_port)?;
        let eds = places.folder.join(EDS_FOLDER);
        move_files(&mut self.0, "target/run", text(&eds)?);
        Ok(())
    }

    /// Names the endpoint pickers' module.
    pub fn set_picker_module(&mut self, module: &Path) -> Result<()> {
        let found = replace(&mut self.0, &"target/endpoint_picker.wasm".into(), &text(module)?.into());
        ensure!(found > 0, "the configuration has no endpoint picker");
        Ok(())
    }

    /// Keeps Envoy from calling this function of the endpoint picker's, or the picker from calling this one of Envoy's.
    pub fn shut(&mut self, function: &str) -> Result<()> {
        let at = self.picker_position()?;
        let picker = &mut self.http_filters()?[at]["typed_config"]["config"];
        let allowed = picker["capability_restriction_config"]["allowed_capabilities"].as_object_mut();
        let was_allowed = allowed.and_then(|allowed| allowed.remove(function));
        was_allowed.map(drop).with_context(|| format!("{function} is not among the allowed capabilities"))
    }

    /// Sets the time a request may take to come whole.
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

    /// Puts `filter` right before the endpoint picker.
    pub fn insert_before_picker(&mut self, filter: Value) -> Result<()> {
        let at = self.picker_position()?;
        self.http_filters()?.insert(at, filter);
        Ok(())
    }

    /// Takes the endpoint picker out, and lets clients play its part.
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

    /// Adds an endpoint picker for another pool, which gets the requests whose path begins with `path_prefix`;
    /// servers see the path without it.
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

    /// Adds a route without the endpoint picker, for the requests whose path begins with `path_prefix`; servers see the
    /// path without it.
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

    /// Puts another cluster in place of the one that reaches the agent.
    pub fn replace_agent_cluster(&mut self, cluster: Value) -> Result<()> {
        let clusters = self.0["static_resources"]["clusters"].as_array_mut();
        let mut clusters = clusters.context("the configuration has no clusters")?.iter_mut();
        let shipped = clusters.find(|shipped| shipped["name"] == cluster["name"]);
        *shipped.context("the configuration has no cluster of this name")? = cluster;
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

    /// The whole document, for a change that only one caller makes.
    pub fn document(&mut self) -> &mut Value {
        &mut self.0
    }

    /// Writes the access log to a file, in the shipped format.
    pub fn log_to(&mut self, file: &Path) -> Result<()> {
        let log = self.connection_manager()?.pointer_mut("/access_log/0/typed_config");
        let log = log.and_then(Value::as_object_mut).context("the configuration has no access log")?;
        log.insert("@type".into(), FILE_ACCESS_LOG.into());
        log.insert("path".into(), text(file)?.into());
        Ok(())
    }

    /// Writes no access log.
    pub fn remove_access_log(&mut self) -> Result<()> {
        let manager = self.connection_manager()?.as_object_mut();
        manager
            .and_then(|manager| manager.remove("access_log"))
            .context("the configuration has no access log")?;
        Ok(())
    }

    /// Writes it in JSON, which Envoy reads as well.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec_pretty(&self.0)?)
            .with_context(|| format!("write {}", path.display()))
    }

    fn connection_manager(&mut self) -> Result<&mut Value> {
        self.0
            .pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
            .context("the configuration has no HTTP connection manager where it is expected")
    }

    fn http_filters(&mut self) -> Result<&mut Vec<Value>> {
        let filters = self.connection_manager()?["http_filters"].as_array_mut();
        filters.context("the configuration has no HTTP filters where they are expected")
    }

    fn routes(&mut self) -> Result<&mut Vec<Value>> {
        let routes = self.connection_manager()?["route_config"]["virtual_hosts"][0]["routes"].as_array_mut();
        routes.context("the configuration has no routes where they are expected")
    }

    fn picker_position(&mut self) -> Result<usize> {
        let position = self.http_filters()?.iter().position(|filter| filter["name"] == PICKER);
        position.with_context(|| format!("the configuration has no HTTP filter {PICKER}"))
    }

    /// Puts another value in the one place where `from` stands.
    fn replace_once(&mut self, from: impl Into<Value>, to: impl Into<Value>) -> Result<()> {
        let from = from.into();
        let found = replace(&mut self.0, &from, &to.into());
        ensure!(found == 1, "{from} stands {found} times in the configuration, expected once");
        Ok(())
    }
}

/// A route's configuration that switches a filter off.
fn disabled(filter: &str) -> Value {
    serde_json::json!({filter: {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
        "disabled": true,
    }})
}

/// Sets a field of an endpoint picker's own configuration.
fn set_field(picker: &mut Value, field: &str, value: Value) -> Result<()> {
    let picker = picker.pointer_mut("/typed_config/config/configuration/value");
    let picker = picker.context("the endpoint picker has no configuration")?;
    let mut fields: Value = serde_json::from_str(picker.as_str().unwrap_or_default())?;
    fields[field] = value;
    *picker = fields.to_string().into();
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Replaces every leaf equal to `from` and counts them.
fn replace(value: &mut Value, from: &Value, to: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(|item| replace(item, from, to)).sum(),
        Value::Object(fields) => fields.values_mut().map(|field| replace(field, from, to)).sum(),
        leaf if leaf == from => {
            *leaf = to.clone();
            1
        }
        _ => 0,
    }
}

/// Puts another folder in place of `from` wherever a text begins with it.
fn move_files(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| move_files(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| move_files(field, from, to)),
        Value::String(text) => {
            if let Some(rest) = text.strip_prefix(from) {
                *text = format!("{to}{rest}");
            }
        }
        _ => {}
    }
}
