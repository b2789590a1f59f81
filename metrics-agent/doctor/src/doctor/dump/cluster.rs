//! Clusters, and where their load balancers read the destination of a request.

use endpoint_picker_engine::proxy::metadata::FALLBACK_KEY;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::route::RetryPolicy;
use super::{Extension, TypedMessage, seconds};

const OVERRIDE_HOST: &str = "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost";
/// The transport socket of plain TCP.
const RAW_BUFFER: &str = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer";
const TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const SUBSET: &str = "envoy.extensions.load_balancing_policies.subset.v3.Subset";
const MODULE_CLUSTER: &str = "envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig";
const ORIGINAL_DST: &str = "envoy.extensions.clusters.original_dst.v3.OriginalDstCluster";

/// The namespace of the metadata that subset load balancers read.
pub(crate) const LB_METADATA: &str = "envoy.lb";

/// A cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DumpedCluster {
    pub(crate) name: String,
    alt_stat_name: String,
    r#type: String,
    cluster_type: Option<Extension>,
    load_balancing_policy: Policies,
    lb_subset_config: Option<SubsetConfig>,
    original_dst_lb_config: Option<OriginalDst>,
    eds_cluster_config: Option<EdsConfig>,
    typed_extension_protocol_options: ProtocolOptions,
    http2_protocol_options: Option<Value>,
    /// The older place of the same field of [`HttpProtocolOptions`].
    common_http_protocol_options: CommonHttpOptions,
    circuit_breakers: CircuitBreakers,
    transport_socket: Option<Extension>,
    transport_socket_matches: Vec<Value>,
}

/// A place in a request from which a load balancer takes the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DestinationSource {
    /// A header.
    Header(String),
    /// Dynamic metadata.
    Metadata { namespace: String, key: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policies {
    policies: Vec<LoadBalancingPolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancingPolicy {
    typed_extension_config: Extension,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OverrideHost {
    override_host_sources: Vec<OverrideHostSource>,
    fallback_policy: Policies,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OverrideHostSource {
    header: String,
    metadata: Option<MetadataKey>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataKey {
    key: String,
    path: Vec<PathSegment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PathSegment {
    key: String,
}

/// The subset load balancer, as a policy and in its older form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubsetConfig {
    subset_selectors: Vec<SubsetSelector>,
    subset_lb_policy: Policies,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubsetSelector {
    keys: Vec<String>,
    fallback_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct OriginalDst {
    use_http_header: bool,
    http_header_name: String,
    metadata_key: Option<MetadataKey>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EdsConfig {
    service_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProtocolOptions {
    #[serde(rename = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")]
    http: Option<HttpProtocolOptions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HttpProtocolOptions {
    retry_policy: Option<RetryPolicy>,
    common_http_protocol_options: CommonHttpOptions,
    explicit_http_config: ExplicitHttpConfig,
    use_downstream_protocol_config: Option<Value>,
    auto_config: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplicitHttpConfig {
    http2_protocol_options: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CommonHttpOptions {
    idle_timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CircuitBreakers {
    thresholds: Vec<PriorityThreshold>,
}

/// The limits of one priority.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PriorityThreshold {
    /// Absent: the default one, which all requests have that a route gives no other.
    priority: Option<String>,
    max_connections: Option<Value>,
    max_pending_requests: Option<Value>,
    max_requests: Option<Value>,
    max_retries: Option<Value>,
    retry_budget: Option<Value>,
}

/// A cluster of the native module.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ModuleCluster {
    cluster_config: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ModuleClusterConfig {
    pool: String,
}

impl MetadataKey {
    fn source(self) -> DestinationSource {
        let key = self.path.into_iter().map(|segment| segment.key).collect::<Vec<_>>().join(".");
        DestinationSource::Metadata { namespace: self.key, key }
    }
}

impl DumpedCluster {
    /// Its name in statistics. Envoy replaces colons there.
    pub(crate) fn name_in_statistics(&self) -> String {
        let name = if self.alt_stat_name.is_empty() { &self.name } else { &self.alt_stat_name };
        name.replace("://", "_").replace(":/", "_").replace(':', "_")
    }

    /// The places from which the endpoint of a request is taken; none with a policy that only balances.
    pub(crate) fn destination_sources(&self) -> Vec<DestinationSource> {
        if let Some(original) = self.original_dst() {
            return original_dst_sources(original);
        }
        let mut sources = Vec::new();
        add_sources(&self.load_balancing_policy, &mut sources);
        if let Some(subset) = &self.lb_subset_config {
            add_subset_sources(subset, &mut sources);
        }
        sources
    }

    /// Whether Envoy connects to any address that it is given.
    pub(crate) fn is_original_dst(&self) -> bool {
        self.original_dst().is_some()
    }

    fn original_dst(&self) -> Option<OriginalDst> {
        let typed = self.cluster_type.as_ref().and_then(|it| TypedMessage::of(&it.typed_config));
        let is_typed = typed.is_some_and(|message| message.kind == ORIGINAL_DST);
        (self.r#type == "ORIGINAL_DST" || is_typed)
            .then(|| self.original_dst_lb_config.clone().unwrap_or_default())
    }

    /// The pool of a cluster of the native module; `None` for other clusters.
    pub(crate) fn module_pool(&self) -> Option<String> {
        let typed = TypedMessage::of(&self.cluster_type.as_ref()?.typed_config)?;
        let module: ModuleCluster = typed.read(MODULE_CLUSTER)?.ok()?;
        let text = TypedMessage::of(&module.cluster_config)?.text()?;
        serde_json::from_str::<ModuleClusterConfig>(&text).ok().map(|config| config.pool)
    }

    /// The name under which Envoy looks for the endpoints of this cluster; `None` unless they come by EDS.
    pub(crate) fn eds_name(&self) -> Option<&str> {
        if self.r#type != "EDS" {
            return None;
        }
        let service = self.eds_cluster_config.as_ref().map(|eds| eds.service_name.as_str());
        Some(service.filter(|name| !name.is_empty()).unwrap_or(&self.name))
    }

    /// Whether Envoy speaks HTTP/2 to its hosts, at least for calls of gRPC.
    pub(crate) fn speaks_http2(&self) -> bool {
        let typed = self.typed_extension_protocol_options.http.as_ref();
        let by_type = typed.is_some_and(|http| {
            let HttpProtocolOptions {
                explicit_http_config, use_downstream_protocol_config, auto_config, ..
            } = http;
            let explicit = &explicit_http_config.http2_protocol_options;
            [explicit, use_downstream_protocol_config, auto_config].into_iter().any(Option::is_some)
        });
        by_type || self.http2_protocol_options.is_some()
    }

    /// The protocol that Envoy speaks to its hosts, and whether over TLS, in words.
    pub(crate) fn transport(&self) -> String {
        let http = self.typed_extension_protocol_options.http.as_ref();
        let protocol = match http {
            Some(http) if http.use_downstream_protocol_config.is_some() => "each client's version of HTTP",
            Some(http) if http.auto_config.is_some() => "HTTP/2 or HTTP/1.1, as TLS agrees on,",
            _ if self.speaks_http2() => "HTTP/2",
            _ => "HTTP/1.1",
        };
        let socket = self.transport_socket.as_ref().and_then(|socket| TypedMessage::of(&socket.typed_config));
        let security = match socket.map(|message| message.kind) {
            _ if !self.transport_socket_matches.is_empty() => "by transport_socket_matches".to_owned(),
            None | Some(RAW_BUFFER) => "without TLS".to_owned(),
            Some(TLS) => "over TLS".to_owned(),
            Some(other) => format!("over {other}"),
        };
        format!("{protocol} {security}")
    }

    /// The seconds after which Envoy closes a connection without requests; `None`: never.
    pub(crate) fn idle_seconds(&self) -> Option<f64> {
        /// Envoy's default.
        const HOUR: f64 = 3600.0;
        let typed = self.typed_extension_protocol_options.http.as_ref();
        // Envoy ignores the older place where the newer one is there.
        let options =
            typed.map_or(&self.common_http_protocol_options, |http| &http.common_http_protocol_options);
        let set = options.idle_timeout.as_deref().and_then(seconds).unwrap_or(HOUR);
        Some(set).filter(|seconds| *seconds > 0.0)
    }

    /// Whether Envoy speaks nothing but HTTP/2 to its hosts.
    pub(crate) fn speaks_only_http2(&self) -> bool {
        let typed = self.typed_extension_protocol_options.http.as_ref();
        typed.map_or(self.http2_protocol_options.is_some(), |http| {
            http.explicit_http_config.http2_protocol_options.is_some()
        })
    }

    /// The circuit breakers that have Envoy's defaults.
    pub(crate) fn default_circuit_breakers(&self) -> Vec<&'static str> {
        let none = PriorityThreshold::default();
        let thresholds = &self.circuit_breakers.thresholds;
        let is_default = |it: &&PriorityThreshold| matches!(it.priority.as_deref(), None | Some("DEFAULT"));
        let threshold = thresholds.iter().find(is_default).unwrap_or(&none);
        let retries = threshold.max_retries.as_ref().or(threshold.retry_budget.as_ref());
        let limits = [
            ("max_connections", threshold.max_connections.as_ref()),
            ("max_pending_requests", threshold.max_pending_requests.as_ref()),
            ("max_requests", threshold.max_requests.as_ref()),
            ("max_retries", retries),
        ];
        limits.into_iter().filter_map(|(name, limit)| limit.is_none().then_some(name)).collect()
    }

    /// Whether a request with the picker's mark finds no host after the end of its list: `None` if the
    /// cluster has no `override_host` policy.
    pub(crate) fn keeps_hints(&self) -> Option<bool> {
        let policies = self.load_balancing_policy.policies.iter();
        let mut overriding = policies.filter_map(|policy| policy.read::<OverrideHost>(OVERRIDE_HOST));
        let fallback = overriding.next()?.fallback_policy;
        let mut subsets = fallback.policies.iter().filter_map(|policy| policy.read::<SubsetConfig>(SUBSET));
        Some(subsets.any(|subset| subset.subset_selectors.iter().any(SubsetSelector::keeps_hints)))
    }

    /// Whether connections to its hosts are more than plain TCP, most often TLS.
    pub(crate) fn has_transport_socket(&self) -> bool {
        self.transport_socket.is_some() || !self.transport_socket_matches.is_empty()
    }

    /// The retry policy of all its requests.
    pub(crate) fn retry_policy(&self) -> Option<&RetryPolicy> {
        self.typed_extension_protocol_options.http.as_ref()?.retry_policy.as_ref()
    }
}

impl LoadBalancingPolicy {
    /// Its configuration, if it is of this type.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        TypedMessage::of(&self.typed_extension_config.typed_config)?.read(name)?.ok()
    }
}

impl SubsetSelector {
    /// Whether it matches requests with the picker's mark, which no host has.
    fn keeps_hints(&self) -> bool {
        self.keys == [FALLBACK_KEY] && self.fallback_policy == "NO_FALLBACK"
    }
}

fn original_dst_sources(config: OriginalDst) -> Vec<DestinationSource> {
    let header = config.use_http_header.then(|| {
        let name = config.http_header_name;
        if name.is_empty() { "x-envoy-original-dst-host".to_owned() } else { name.to_ascii_lowercase() }
    });
    let metadata = config.metadata_key.map(MetadataKey::source);
    header.map(DestinationSource::Header).into_iter().chain(metadata).collect()
}

fn add_sources(policies: &Policies, sources: &mut Vec<DestinationSource>) {
    for policy in &policies.policies {
        let Some(message) = TypedMessage::of(&policy.typed_extension_config.typed_config) else { continue };
        if let Some(Ok(policy)) = message.read::<OverrideHost>(OVERRIDE_HOST) {
            for source in policy.override_host_sources {
                let metadata = source.metadata.map(MetadataKey::source);
                let header = Some(source.header.to_ascii_lowercase()).filter(|name| !name.is_empty());
                sources.extend(header.map(DestinationSource::Header).into_iter().chain(metadata));
            }
        } else if let Some(Ok(subset)) = message.read(SUBSET) {
            add_subset_sources(&subset, sources);
        }
    }
}

fn add_subset_sources(subset: &SubsetConfig, sources: &mut Vec<DestinationSource>) {
    let keys = subset.subset_selectors.iter().flat_map(|selector| &selector.keys);
    sources.extend(
        keys.map(|key| DestinationSource::Metadata { namespace: LB_METADATA.to_owned(), key: key.clone() }),
    );
    add_sources(&subset.subset_lb_policy, sources);
}
