//! The fields of the document.

use deserr::Deserr;
use endpoint_picker_wire::v1;
use serde_json::Value as Json;

use super::Findings;
use super::flow_control::{Detector, FlowControl};
use crate::manifests::Scope;
use crate::manifests::fault::{Faults, quoted};
use crate::manifests::fields::{Name, Texts};

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct EndpointPickerConfig {
    #[deserr(rename = "apiVersion")]
    _api_version: String,
    #[deserr(rename = "kind")]
    _kind: String,
    #[deserr(default)]
    metadata: Option<ConfigMetadata>,
    #[deserr(default)]
    pub(super) feature_gates: Vec<String>,
    #[deserr(default)]
    pub(super) plugins: Vec<Plugin>,
    #[deserr(default)]
    pub(super) scheduling_profiles: Vec<Profile>,
    #[deserr(default)]
    pub(super) data_layer: Option<DataLayer>,
    #[deserr(default)]
    pub(super) flow_control: Option<FlowControl>,
    #[deserr(default)]
    pub(super) request_handler: Option<RequestHandler>,
    #[deserr(default)]
    pub(super) saturation_detector: Option<Detector>,
    #[deserr(default)]
    pub(super) parser: Option<PluginRef>,
}

impl EndpointPickerConfig {
    /// The name in the plan of the pool that it names. The EPP's document has no metadata: there, one picker
    /// serves one pool.
    pub(crate) fn pool(&self, scope: &Scope) -> Option<String> {
        self.metadata.as_ref().map(|ConfigMetadata { name, namespace, .. }| {
            let namespace = scope.namespace_or_default(namespace.as_ref().map(|name| name.0.clone()));
            scope.pool_name(&namespace, &name.0)
        })
    }

    /// Whether it decides without acting.
    pub(crate) fn is_shadow(&self) -> bool {
        self.metadata.as_ref().is_some_and(|metadata| metadata.annotations.is_shadow)
    }
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults)]
struct ConfigMetadata {
    name: Name,
    #[deserr(default)]
    namespace: Option<Name>,
    #[deserr(default)]
    annotations: DocumentAnnotations,
}

/// The product's own annotations. A misspelt one is refused, because a shadow would act without it.
#[derive(Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(Texts) = Self::new -> String)]
struct DocumentAnnotations {
    is_shadow: bool,
}

impl DocumentAnnotations {
    const SHADOW: &str = "endpoint-picker/shadow";

    fn new(Texts(texts): Texts) -> Result<Self, String> {
        let mut annotations = Self::default();
        for (name, value) in texts.iter().filter(|(name, _)| name.starts_with("endpoint-picker/")) {
            annotations.is_shadow = match (name.as_str(), value.as_str()) {
                (Self::SHADOW, "true") => true,
                (Self::SHADOW, "false") => false,
                _ => {
                    let (name, value, allowed) = (quoted(name), quoted(value), Self::SHADOW);
                    return Err(format!(
                        "{name}: {value} is unknown; allowed are {allowed}: \"true\" or \"false\""
                    ));
                }
            };
        }
        Ok(annotations)
    }
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
pub(super) struct Plugin {
    #[deserr(default)]
    pub(super) name: String,
    #[deserr(rename = "type")]
    pub(super) type_name: String,
    #[deserr(default = Json::Object(serde_json::Map::new()))]
    pub(super) parameters: Json,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
pub(super) struct Profile {
    name: String,
    #[deserr(default)]
    pub(super) plugins: Vec<ProfilePlugin>,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct ProfilePlugin {
    pub(super) plugin_ref: String,
    #[deserr(default)]
    weight: Option<f64>,
}

impl Profile {
    /// The profile without the plugins that the filter does not have, and the document's index of each plugin
    /// that is left.
    pub(super) fn on_the_wire(self, has: impl Fn(&str) -> bool) -> (v1::Profile, Vec<usize>) {
        let plugins = self.plugins.into_iter().enumerate().filter(|(_, plugin)| has(&plugin.plugin_ref));
        let plugin = |(index, plugin): (usize, ProfilePlugin)| {
            (v1::PluginRef { name: plugin.plugin_ref, weight: plugin.weight }, index)
        };
        let (plugins, indexes) = plugins.map(plugin).unzip();
        (v1::Profile { name: self.name, plugins }, indexes)
    }
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct PluginRef {
    pub(super) plugin_ref: String,
}

#[derive(Debug, Default, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
pub(super) struct RequestHandler {
    #[deserr(default)]
    pub(super) parsers: Vec<PluginRef>,
    #[deserr(default, rename = "propagatePriority")]
    pub(super) propagate_priority: bool,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct DataLayer {
    #[deserr(default = true)]
    pub(super) inject_defaults: bool,
    #[deserr(default)]
    pub(super) sources: Vec<DataSource>,
    #[deserr(default)]
    pub(super) discovery: Option<Discovery>,
    /// Replaced by `discovery.peers`.
    #[deserr(default)]
    pub(super) peer_discovery: Option<PluginRef>,
    #[deserr(default)]
    pub(super) cross_replica: Option<CrossReplica>,
    /// This and the next two are replaced by `crossReplica`.
    #[deserr(default)]
    pub(super) cross_replica_syncer_plugin_ref: Option<String>,
    #[deserr(default)]
    pub(super) cross_replica_sync_interval: Option<String>,
    #[deserr(default)]
    pub(super) cross_replica_publish_timeout: Option<String>,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct Discovery {
    /// Replaced by `endpoints`.
    #[deserr(default)]
    pub(super) plugin_ref: Option<String>,
    #[deserr(default)]
    pub(super) endpoints: Option<PluginRef>,
    #[deserr(default)]
    pub(super) peers: Option<PluginRef>,
}

/// How replicas of the EPP share state.
#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct CrossReplica {
    #[deserr(default, rename = "syncerPluginRef")]
    _syncer_plugin_ref: Option<String>,
    #[deserr(default, rename = "syncInterval")]
    _sync_interval: Option<String>,
    #[deserr(default, rename = "publishTimeout")]
    _publish_timeout: Option<String>,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct DataSource {
    pub(super) plugin_ref: String,
    #[deserr(default)]
    pub(super) extractors: Vec<PluginRef>,
}

/// Requests wait in the picker. Only the native module has a queue.
const FLOW_CONTROL: &str = "flowControl";

/// Makes replicas of the EPP share their view of the cluster. Accepted with any value, without effect.
const HA_NON_LEADER: &str = "haPopulateNonLeaderDatastore";

/// Go's spellings of a boolean, in any case.
const TRUE: [&str; 3] = ["1", "t", "true"];
const FALSE: [&str; 3] = ["0", "f", "false"];

/// Checks the gates. Returns whether requests wait; of two gates of one name, the later one counts, as in the
/// EPP.
pub(super) fn check_gates(gates: &[String], findings: &mut Findings) -> bool {
    let mut queues = None;
    for (index, gate) in gates.iter().enumerate() {
        let at = format!("featureGates[{index}]");
        let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
        if ![FLOW_CONTROL, HA_NON_LEADER].contains(&name) {
            let text =
                format!("unknown feature gate {}; allowed are {FLOW_CONTROL}, {HA_NON_LEADER}", quoted(name));
            findings.fault(at, text);
            continue;
        }
        let value = value.trim().to_ascii_lowercase();
        let is_on = TRUE.contains(&value.as_str());
        if !is_on && !FALSE.contains(&value.as_str()) {
            let text = format!(
                "{} is not a boolean; allowed are {name}, {name}=true and {name}=false",
                quoted(gate)
            );
            findings.fault(at, text);
        } else if name == FLOW_CONTROL {
            queues = is_on.then_some(at);
        }
    }
    let queues = queues.map(|at| {
        findings
            .warn(at, "requests wait only in the native module; the wasm filter refuses this configuration");
    });
    queues.is_some()
}
