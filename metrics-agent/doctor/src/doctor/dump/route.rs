//! Route configurations.

use std::collections::BTreeMap;

use metrics_agent_status::extension::{MARK, NAME, WRONG_ORDER};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Configurations of HTTP filters, by the filters' names.
pub(crate) type TypedConfigs = BTreeMap<String, Value>;

/// A route configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RouteConfiguration {
    pub(crate) name: String,
    pub(crate) virtual_hosts: Vec<VirtualHost>,
    pub(crate) typed_per_filter_config: TypedConfigs,
}

/// A virtual host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VirtualHost {
    pub(crate) name: String,
    pub(crate) routes: Vec<EnvoyRoute>,
    pub(crate) retry_policy: Option<RetryPolicy>,
    pub(crate) typed_per_filter_config: TypedConfigs,
}

/// A route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EnvoyRoute {
    name: String,
    r#match: Value,
    /// Absent for a redirect or a direct response.
    pub(crate) route: Option<RouteAction>,
    direct_response: Value,
    pub(crate) typed_per_filter_config: TypedConfigs,
    metadata: RouteMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RouteMetadata {
    filter_metadata: BTreeMap<String, Value>,
}

/// The mark of the extension server on a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Mark {
    pools: Vec<MarkedPool>,
}

/// A pool that a route of a gateway leads to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MarkedPool {
    #[serde(rename = "pool")]
    pub(crate) name: String,
    /// Whether the filter picks for it.
    #[serde(rename = "own")]
    pub(crate) is_own: bool,
}

/// The clusters of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RouteAction {
    cluster: String,
    weighted_clusters: Option<WeightedClusters>,
    /// The maximum time of a whole response; absent: Envoy's 15 s.
    pub(crate) timeout: Option<String>,
    pub(crate) retry_policy: Option<RetryPolicy>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WeightedClusters {
    clusters: Vec<WeightedCluster>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WeightedCluster {
    name: String,
    typed_per_filter_config: TypedConfigs,
}

/// A retry policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RetryPolicy {
    retry_on: String,
    num_retries: Option<u64>,
    retry_host_predicate: Vec<IgnoredAny>,
}

impl EnvoyRoute {
    /// The pools that the extension server has found among the route's backends.
    pub(crate) fn marked_pools(&self) -> Vec<MarkedPool> {
        let mark = self.metadata.filter_metadata.get(MARK);
        mark.and_then(|mark| Mark::deserialize(mark).ok()).unwrap_or_default().pools
    }

    /// Whether the extension server refuses the route's requests because of the order of extension servers.
    pub(crate) fn is_refused_for_order(&self) -> bool {
        self.direct_response.pointer("/body/inline_string").is_some_and(|body| body == WRONG_ORDER)
    }

    /// Whether the route, or one of its clusters, has a configuration of the extension server's filter.
    pub(crate) fn has_filter_settings(&self) -> bool {
        let clusters = self.route.iter().flat_map(RouteAction::clusters).filter_map(|(_, configs)| configs);
        core::iter::once(&self.typed_per_filter_config)
            .chain(clusters)
            .any(|configs| configs.contains_key(NAME))
    }

    /// Its name, or the condition that it matches.
    pub(crate) fn label(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let Value::Object(fields) = &self.r#match else { return "without a name".to_owned() };
        let conditions = ["prefix", "path", "path_separated_prefix", "safe_regex"];
        let condition = conditions.iter().find_map(|name| Some((name, fields.get(*name)?)));
        condition.map_or_else(
            || "without a name".to_owned(),
            |(name, value)| match value {
                Value::String(text) => format!("{name} {text}"),
                other => format!("{name} {other}"),
            },
        )
    }
}

impl RouteAction {
    /// The clusters, each with its own configurations of filters; none if a header or an extension names the
    /// cluster.
    pub(crate) fn clusters(&self) -> Vec<(&str, Option<&TypedConfigs>)> {
        let weighted = self.weighted_clusters.iter().flat_map(|weighted| &weighted.clusters);
        let weighted = weighted.map(|it| (it.name.as_str(), Some(&it.typed_per_filter_config)));
        let one = Some((self.cluster.as_str(), None));
        one.into_iter().chain(weighted).filter(|(name, _)| !name.is_empty()).collect()
    }
}

impl RetryPolicy {
    /// Whether a request whose server is unreachable is tried again.
    pub(crate) fn retries_unreachable_servers(&self) -> bool {
        const CONDITIONS: [&str; 5] =
            ["connect-failure", "reset", "reset-before-request", "5xx", "gateway-error"];
        let mut conditions = self.retry_on.split(',').map(str::trim);
        conditions.any(|condition| CONDITIONS.contains(&condition)) && self.num_retries != Some(0)
    }

    /// Whether it keeps some hosts from a request that is tried again.
    pub(crate) fn has_host_predicate(&self) -> bool {
        !self.retry_host_predicate.is_empty()
    }
}
