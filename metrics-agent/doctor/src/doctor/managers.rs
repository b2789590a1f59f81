//! The filters and the cluster of each route that a picker runs on.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::dump::{
    ConfigDump, Extension, HttpConnectionManager, Listener, RetryPolicy, RouteConfiguration, TypedConfigs,
    TypedMessage,
};
use super::picker::{Picker, is_off};

const HEADER_TO_METADATA: &str = "envoy.extensions.filters.http.header_to_metadata.v3.Config";
/// The namespace of the metadata that restricts the picker's choice.
const HINT_NAMESPACE: &str = "envoy.lb.subset_hint";
const EXT_PROC: &str = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

/// Envoy's limit of a listener's buffers, in bytes, unless the listener has its own.
const DEFAULT_BUFFER_BYTES: u64 = 1 << 20;

/// An HTTP connection manager with a picker among its filters.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) listener: String,
    /// `per_connection_buffer_limit_bytes`; `None`: there is no limit.
    pub(crate) buffer_bytes: Option<u64>,
    pub(crate) settings: HttpConnectionManager,
    /// All its filters, also those that are disabled.
    pub(crate) filters: Vec<Arc<HttpFilter>>,
    /// The routes on which a picker runs.
    pub(crate) entries: Vec<RouteEntry>,
    /// The name of its route configuration, if Envoy does not have it.
    pub(crate) missing_routes: Option<String>,
}

/// A cluster of a route, with the filters that run for it.
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pub(crate) place: String,
    /// The filters that run, in their order.
    pub(crate) filters: Vec<Arc<HttpFilter>>,
    /// `None` if a header or an extension names the cluster.
    pub(crate) cluster: Option<String>,
    pub(crate) retry_policy: Option<RetryPolicy>,
    /// Whether the route has a maximum time of a response, or has none on purpose.
    pub(crate) has_timeout: bool,
}

/// An HTTP filter.
#[derive(Debug)]
pub(crate) struct HttpFilter {
    pub(crate) name: String,
    is_disabled: bool,
    pub(crate) kind: FilterKind,
}

/// The kinds of HTTP filters that the checks tell apart.
#[derive(Debug)]
pub(crate) enum FilterKind {
    Picker(Box<Picker>),
    /// The native module on routes without a pool.
    Off,
    HeaderToMetadata(Vec<MetadataRule>),
    /// It may be the EPP.
    ExtProc,
    Other,
}

/// A rule that copies a request's header into metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetadataRule {
    pub(crate) header: String,
    on_header_present: MetadataTarget,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataTarget {
    metadata_namespace: String,
    key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HeaderToMetadata {
    request_rules: Vec<MetadataRule>,
}

/// A route's configuration of a filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RouteFilterConfig {
    disabled: bool,
    config: Value,
}

impl MetadataRule {
    /// Namespace and key of the metadata.
    pub(crate) fn target(&self) -> (&str, &str) {
        (&self.on_header_present.metadata_namespace, &self.on_header_present.key)
    }
}

impl HttpFilter {
    fn new(extension: &Extension, dump: &ConfigDump) -> Self {
        let discovered = dump.filters.get(&extension.name).filter(|_| extension.config_discovery.is_some());
        let config = &discovered.unwrap_or(extension).typed_config;
        Self { name: extension.name.clone(), is_disabled: extension.disabled, kind: FilterKind::of(config) }
    }

    /// The picker that this filter is.
    pub(crate) fn picker(&self) -> Option<&Picker> {
        match &self.kind {
            FilterKind::Picker(picker) => Some(picker),
            FilterKind::Off | FilterKind::HeaderToMetadata(_) | FilterKind::ExtProc | FilterKind::Other => {
                None
            }
        }
    }

    /// Whether it picks, or would where a route names a pool.
    pub(crate) fn is_of_picker(&self) -> bool {
        matches!(self.kind, FilterKind::Picker(_) | FilterKind::Off)
    }

    /// Its rules from headers to metadata.
    pub(crate) fn metadata_rules(&self) -> &[MetadataRule] {
        match &self.kind {
            FilterKind::HeaderToMetadata(rules) => rules,
            FilterKind::Picker(_) | FilterKind::Off | FilterKind::ExtProc | FilterKind::Other => &[],
        }
    }

    /// Whether it sets the subset hint.
    pub(crate) fn sets_hint(&self) -> bool {
        self.metadata_rules().iter().any(|rule| rule.target().0 == HINT_NAMESPACE)
    }

    /// Whether it copies this header into this metadata.
    pub(crate) fn copies(&self, header: &str, target: (&str, &str)) -> bool {
        let mut rules = self.metadata_rules().iter();
        rules.any(|rule| rule.header.eq_ignore_ascii_case(header) && rule.target() == target)
    }

    /// The filter as it runs with these configurations of routes, the most specific one first; `None` if it
    /// does not run.
    fn with(self: &Arc<Self>, scopes: &[&TypedConfigs]) -> Option<Arc<Self>> {
        let own = || (!self.is_disabled).then(|| Arc::clone(self));
        let Some(any) = scopes.iter().find_map(|configs| configs.get(&self.name)) else { return own() };
        let Some(message) = TypedMessage::of(any) else { return own() };
        let replaced = |any: &Value| match FilterKind::of(any) {
            FilterKind::Other => Arc::clone(self),
            kind @ (FilterKind::Picker(_)
            | FilterKind::Off
            | FilterKind::HeaderToMetadata(_)
            | FilterKind::ExtProc) => Arc::new(Self { name: self.name.clone(), is_disabled: false, kind }),
        };
        match message.read::<RouteFilterConfig>(FILTER_CONFIG) {
            Some(Ok(config)) => (!config.disabled).then(|| replaced(&config.config)),
            Some(Err(_)) => own(),
            None => Some(replaced(any)),
        }
    }
}

impl FilterKind {
    fn of(typed_config: &Value) -> Self {
        let Some(message) = TypedMessage::of(typed_config) else { return Self::Other };
        if let Some(Ok(HeaderToMetadata { request_rules })) = message.read(HEADER_TO_METADATA) {
            return Self::HeaderToMetadata(request_rules);
        }
        if message.kind == EXT_PROC {
            return Self::ExtProc;
        }
        match Picker::of(message) {
            Some(picker) => Self::Picker(Box::new(picker)),
            None if is_off(message) => Self::Off,
            None => Self::Other,
        }
    }
}

impl Manager {
    /// The managers with a picker, of all listeners.
    pub(crate) fn all_of(dump: &ConfigDump) -> Vec<Self> {
        let managers = dump.listeners.iter().flat_map(|listener| {
            listener.managers().filter_map(|settings| Self::new(listener, settings.ok()?, dump))
        });
        managers.collect()
    }

    fn new(listener: &Listener, settings: HttpConnectionManager, dump: &ConfigDump) -> Option<Self> {
        let filters = settings.http_filters.iter().map(|filter| Arc::new(HttpFilter::new(filter, dump)));
        let filters: Vec<_> = filters.collect();
        if !filters.iter().any(|filter| filter.is_of_picker()) {
            return None;
        }
        let routes = settings.route_config.as_ref();
        let name = settings.route_config_name();
        let routes = routes.or_else(|| dump.routes.get(name?));
        let buffer_bytes = listener.per_connection_buffer_limit_bytes.unwrap_or(DEFAULT_BUFFER_BYTES);
        let entries = routes.map(|routes| entries(routes, &filters)).unwrap_or_default();
        Some(Self {
            listener: listener.name.clone(),
            buffer_bytes: Some(buffer_bytes).filter(|bytes| *bytes > 0),
            missing_routes: name.filter(|_| routes.is_none()).map(str::to_owned),
            filters,
            entries,
            settings,
        })
    }

    /// The names of its filters that pick, also of those that are disabled or have no pool.
    pub(crate) fn picker_names(&self) -> Vec<&str> {
        let filters = self.filters.iter().filter(|filter| filter.is_of_picker());
        filters.map(|filter| filter.name.as_str()).collect()
    }

    /// The place of one of its filters.
    pub(crate) fn place_of(&self, filter: &HttpFilter) -> String {
        format!("listener {}, HTTP filter {}", self.listener, filter.name)
    }

    /// Whether this picker is among its filters, and not of a route.
    pub(crate) fn has(&self, picker: &Picker) -> bool {
        self.pickers().any(|(_, own)| core::ptr::eq(own, picker))
    }

    /// Its pickers, also those that are disabled, with their filters.
    pub(crate) fn pickers(&self) -> impl Iterator<Item = (&HttpFilter, &Picker)> {
        self.filters.iter().filter_map(|filter| Some((&**filter, filter.picker()?)))
    }
}

impl RouteEntry {
    /// The pickers that run on it, with their places among the filters.
    pub(crate) fn pickers(&self) -> impl Iterator<Item = (usize, &Picker)> {
        self.filters.iter().enumerate().filter_map(|(at, filter)| Some((at, filter.picker()?)))
    }
}

/// The routes on which a picker runs.
fn entries(routes: &RouteConfiguration, filters: &[Arc<HttpFilter>]) -> Vec<RouteEntry> {
    let mut entries = Vec::new();
    for host in &routes.virtual_hosts {
        for route in &host.routes {
            let Some(action) = &route.route else { continue };
            let scopes = [
                &route.typed_per_filter_config,
                &host.typed_per_filter_config,
                &routes.typed_per_filter_config,
            ];
            let retry_policy = action.retry_policy.as_ref().or(host.retry_policy.as_ref());
            let mut clusters: Vec<_> =
                action.clusters().into_iter().map(|(name, configs)| (Some(name), configs)).collect();
            if clusters.is_empty() {
                clusters.push((None, None));
            }
            for (cluster, configs) in clusters {
                let scopes: Vec<&TypedConfigs> = configs.into_iter().chain(scopes).collect();
                let entry = RouteEntry {
                    place: format!(
                        "route configuration {}, virtual host {}, route {}",
                        routes.name,
                        host.name,
                        route.label()
                    ),
                    filters: filters.iter().filter_map(|filter| filter.with(&scopes)).collect(),
                    cluster: cluster.map(str::to_owned),
                    retry_policy: retry_policy.cloned(),
                    has_timeout: action.timeout.is_some(),
                };
                entries.extend(Some(entry).filter(|entry| entry.pickers().next().is_some()));
            }
        }
    }
    entries
}
