//! The parts of Envoy's `/config_dump` that the checks read. Unknown fields are ignored, and a resource that
//! cannot be read does not keep the others from being read.

mod cluster;
mod listener;
mod route;

use core::fmt;
use std::collections::BTreeMap;

pub(crate) use cluster::{DestinationSource, DumpedCluster, LB_METADATA};
pub(crate) use listener::{HttpConnectionManager, Listener};
pub(crate) use route::{EnvoyRoute, RetryPolicy, RouteConfiguration, TypedConfigs, VirtualHost};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;

/// Envoy's configuration in force.
#[derive(Debug, Default)]
pub struct ConfigDump {
    pub(crate) version: Option<Version>,
    /// Whether `stats_config` names the statistics that Envoy keeps.
    pub(crate) has_stats_matcher: bool,
    /// Whether `stats_config` makes labels of the wasm filter's statistics.
    pub(crate) has_stats_tags: bool,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) clusters: Vec<DumpedCluster>,
    /// Route configurations by name.
    pub(crate) routes: BTreeMap<String, RouteConfiguration>,
    /// HTTP filters that Envoy gets by themselves (ECDS), by name.
    pub(crate) filters: BTreeMap<String, Extension>,
    /// Updates that Envoy has refused.
    pub(crate) refused: Vec<RefusedUpdate>,
    /// Resources that cannot be read here, with the reason.
    pub(crate) unread: Vec<String>,
}

/// A version of Envoy.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default)]
pub(crate) struct Version {
    #[serde(rename = "major_number")]
    pub(crate) major: u64,
    #[serde(rename = "minor_number")]
    pub(crate) minor: u64,
    pub(crate) patch: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An update that Envoy has refused; the former resource stays in force.
#[derive(Debug)]
pub(crate) struct RefusedUpdate {
    /// Kind and name of the resource.
    pub(crate) resource: String,
    /// Envoy's reason.
    pub(crate) reason: String,
}

/// `/config_dump`.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    configs: Vec<&'a RawValue>,
}

/// One of the parts of a dump: each has some of these lists.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Section<'a> {
    bootstrap: Bootstrap,
    #[serde(borrow)]
    static_listeners: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    dynamic_listeners: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    static_clusters: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    dynamic_active_clusters: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    dynamic_warming_clusters: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    static_route_configs: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    dynamic_route_configs: Vec<DumpEntry<'a>>,
    #[serde(borrow)]
    ecds_filters: Vec<DumpEntry<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Bootstrap {
    node: EnvoyNode,
    stats_config: StatsConfig,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatsConfig {
    stats_matcher: Option<IgnoredAny>,
    stats_tags: Vec<TagSpecifier>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TagSpecifier {
    regex: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EnvoyNode {
    user_agent_build_version: BuildVersion,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BuildVersion {
    version: Option<Version>,
}

/// A resource, static or dynamic, with the state of its updates.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DumpEntry<'a> {
    name: String,
    #[serde(borrow)]
    listener: Option<&'a RawValue>,
    #[serde(borrow)]
    cluster: Option<&'a RawValue>,
    #[serde(borrow)]
    route_config: Option<&'a RawValue>,
    #[serde(borrow)]
    ecds_filter: Option<&'a RawValue>,
    /// A listener in force.
    #[serde(borrow)]
    active_state: Option<ListenerState<'a>>,
    /// A listener that waits for its routes, filters or secrets.
    #[serde(borrow)]
    warming_state: Option<ListenerState<'a>>,
    error_state: Option<ErrorState>,
}

#[derive(Deserialize)]
struct ListenerState<'a> {
    #[serde(borrow)]
    listener: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorState {
    failed_configuration: Named,
    details: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

impl ConfigDump {
    /// Reads the JSON of `/config_dump`.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let document: Document<'_> = serde_json::from_slice(json)?;
        let mut dump = Self::default();
        for raw in document.configs {
            match serde_json::from_str(raw.get()) {
                Ok(section) => dump.add(section),
                Err(error) => dump.unread.push(error.to_string()),
            }
        }
        Ok(dump)
    }

    fn add(&mut self, section: Section<'_>) {
        self.version = self.version.or(section.bootstrap.node.user_agent_build_version.version);
        let StatsConfig { stats_matcher, stats_tags } = section.bootstrap.stats_config;
        self.has_stats_matcher |= stats_matcher.is_some();
        self.has_stats_tags |= stats_tags.iter().any(|tag| tag.regex.contains("endpoint_picker"));
        for entry in section.static_listeners.into_iter().chain(section.dynamic_listeners) {
            self.add_refusal("listener", &entry);
            let state = entry.active_state.or(entry.warming_state);
            let listener = entry.listener.or(state.and_then(|state| state.listener));
            let listener = self.read("listener", &entry.name, listener);
            self.listeners.extend(listener);
        }
        let clusters = section.static_clusters.into_iter().chain(section.dynamic_active_clusters);
        for entry in clusters.chain(section.dynamic_warming_clusters) {
            self.add_refusal("cluster", &entry);
            let cluster = self.read("cluster", &entry.name, entry.cluster);
            self.clusters.extend(cluster);
        }
        for entry in section.static_route_configs.into_iter().chain(section.dynamic_route_configs) {
            self.add_refusal("route configuration", &entry);
            let routes: Option<RouteConfiguration> =
                self.read("route configuration", &entry.name, entry.route_config);
            self.routes.extend(routes.map(|routes| (routes.name.clone(), routes)));
        }
        for entry in section.ecds_filters {
            self.add_refusal("filter", &entry);
            let filter: Option<Extension> = self.read("filter", &entry.name, entry.ecds_filter);
            self.filters.extend(filter.map(|filter| (filter.name.clone(), filter)));
        }
    }

    fn add_refusal(&mut self, kind: &str, entry: &DumpEntry<'_>) {
        let Some(error) = &entry.error_state else { return };
        let name = if entry.name.is_empty() { &error.failed_configuration.name } else { &entry.name };
        let resource = format!("{kind} {name}");
        self.refused.push(RefusedUpdate { resource, reason: error.details.clone() });
    }

    fn read<T: DeserializeOwned>(&mut self, kind: &str, name: &str, raw: Option<&RawValue>) -> Option<T> {
        let parsed = serde_json::from_str(raw?.get());
        parsed.map_err(|error| self.unread.push(format!("{kind} {name}: {error}"))).ok()
    }

    /// The cluster of this name.
    pub(crate) fn cluster(&self, name: &str) -> Option<&DumpedCluster> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }
}

/// The seconds of a duration, such as `0.250s`.
fn seconds(duration: &str) -> Option<f64> {
    duration.strip_suffix('s')?.parse().ok()
}

/// A named extension.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) typed_config: Value,
    /// An HTTP filter that Envoy gets by itself (ECDS) is without a configuration here.
    pub(crate) config_discovery: Option<Value>,
    /// An HTTP filter that runs only on routes that enable it.
    pub(crate) disabled: bool,
}

/// A typed configuration (`google.protobuf.Any`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypedMessage<'a> {
    /// The full name of the message.
    pub(crate) kind: &'a str,
    /// Its fields.
    pub(crate) fields: &'a Value,
}

impl<'a> TypedMessage<'a> {
    /// The message in an `Any`. A `TypedStruct`, in which control planes pass messages that they do not know,
    /// is unpacked.
    pub(crate) fn of(any: &'a Value) -> Option<Self> {
        let url = any.get("@type")?.as_str()?;
        let name = url.rsplit('/').next()?;
        if name.ends_with(".TypedStruct") {
            let name = any.get("type_url")?.as_str()?.rsplit('/').next()?;
            return Some(Self { kind: name, fields: any.get("value")? });
        }
        Some(Self { kind: name, fields: any })
    }

    /// The message as this type, if it has this full name.
    pub(crate) fn read<T: DeserializeOwned>(self, name: &str) -> Option<Result<T, serde_json::Error>> {
        (self.kind == name).then(|| T::deserialize(self.fields))
    }

    /// The JSON text in a `StringValue` or a `Struct`, as Envoy passes it to a wasm filter or a module.
    pub(crate) fn text(self) -> Option<String> {
        let value = self.fields.get("value")?;
        match self.kind {
            "google.protobuf.StringValue" => value.as_str().map(str::to_owned),
            "google.protobuf.Struct" => Some(value.to_string()),
            _ => None,
        }
    }
}
