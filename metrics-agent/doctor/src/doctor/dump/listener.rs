//! Listeners and their HTTP connection managers.

use serde::Deserialize;

use super::route::RouteConfiguration;
use super::{Extension, TypedMessage};

/// A listener.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Listener {
    pub(crate) name: String,
    /// Bytes; Envoy's default is 1 MiB.
    pub(crate) per_connection_buffer_limit_bytes: Option<u64>,
    filter_chains: Vec<FilterChain>,
    default_filter_chain: Option<FilterChain>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FilterChain {
    filters: Vec<Extension>,
}

impl Listener {
    /// The HTTP connection managers of all filter chains. Several chains, one for each certificate, often
    /// have equal ones.
    pub(crate) fn managers(&self) -> impl Iterator<Item = Result<HttpConnectionManager, serde_json::Error>> {
        const NAME: &str =
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let chains = self.filter_chains.iter().chain(&self.default_filter_chain);
        let filters = chains.flat_map(|chain| &chain.filters);
        filters.filter_map(|filter| TypedMessage::of(&filter.typed_config)?.read(NAME))
    }
}

/// An HTTP connection manager.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HttpConnectionManager {
    pub(crate) http_filters: Vec<Extension>,
    pub(crate) route_config: Option<RouteConfiguration>,
    rds: Option<Rds>,
    normalize_path: bool,
    merge_slashes: bool,
    path_with_escaped_slashes_action: String,
    early_header_mutation_extensions: Vec<Extension>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rds {
    route_config_name: String,
}

/// The mutations of a `HeaderMutation`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EarlyMutation {
    mutations: Vec<Mutation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Mutation {
    remove: String,
}

impl HttpConnectionManager {
    /// The name of the route configuration that Envoy gets by itself (RDS).
    pub(crate) fn route_config_name(&self) -> Option<&str> {
        self.rds.as_ref().map(|rds| rds.route_config_name.as_str())
    }

    /// The settings of path normalization that are missing.
    pub(crate) fn missing_path_settings(&self) -> Vec<&'static str> {
        let action = self.path_with_escaped_slashes_action.as_str();
        let keeps_escaped_slashes =
            matches!(action, "" | "IMPLEMENTATION_SPECIFIC_DEFAULT" | "KEEP_UNCHANGED");
        let settings = [
            (!self.normalize_path, "normalize_path: true"),
            (!self.merge_slashes, "merge_slashes: true"),
            (keeps_escaped_slashes, "path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD"),
        ];
        settings.into_iter().filter_map(|(is_missing, setting)| is_missing.then_some(setting)).collect()
    }

    /// Whether a client's value of this header is removed before the first filter.
    pub(crate) fn removes_early(&self, header: &str) -> bool {
        const NAME: &str = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation";
        let extensions = self.early_header_mutation_extensions.iter();
        let mutations = extensions.filter_map(|extension| {
            TypedMessage::of(&extension.typed_config)?.read::<EarlyMutation>(NAME)?.ok()
        });
        mutations.flat_map(|early| early.mutations).any(|it| it.remove.eq_ignore_ascii_case(header))
    }
}
