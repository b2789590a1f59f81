//! `dataLayer`: the declared plugins by which the agent scrapes servers and finds endpoints.

pub(super) mod scraping;

use std::path::PathBuf;

use scraping::Scraping;

use super::Findings;
use super::agent_plugins::AgentPlugin;
use super::document::{DataLayer, DataSource, Discovery, PluginRef};
use super::observed_latency::OBSERVER;
use super::plugins::Declared;
use crate::manifests::fault::quoted;

const SOURCE: &str = "metrics-data-source";
const EXTRACTOR: &str = "core-metrics-extractor";
const GPU_SOURCE: &str = "dcgm-data-source";
const GPU_EXTRACTOR: &str = "dcgm-extractor";
const DISCOVERY: &str = "file-discovery";
const MODELS_SOURCE: &str = "models-data-source";
const MODELS_EXTRACTOR: &str = "models-data-extractor";

/// Sources that pass events on to their extractors, which are plugins of any type.
const NOTIFICATION_SOURCES: [&str; 2] = ["endpoint-notification-source", "k8s-notification-source"];

/// The scraping settings and the endpoints file of a configuration.
pub(super) fn read(
    data_layer: Option<DataLayer>,
    declared: &[Declared],
    findings: &mut Findings,
) -> (Scraping, Option<PathBuf>) {
    // Without `dataLayer`, the plugins named as their types are used.
    let mut source = find(declared, SOURCE);
    let mut extractor = find(declared, EXTRACTOR);
    let (mut gpu, mut models, mut endpoints_file) = (None, None, None);
    if let Some(data_layer) = data_layer {
        warn_of_replicas(&data_layer, findings);
        if !data_layer.inject_defaults && data_layer.sources.is_empty() {
            findings.warn("dataLayer.injectDefaults", "is false, but the agent always scrapes");
        }
        let listed = ScrapingPlugins::read(&data_layer.sources, declared, findings);
        source = listed.metrics.or(source);
        extractor = listed.extractor.or(extractor);
        gpu = listed.gpu;
        models = listed.models;
        if let Some((name, at)) = data_layer.discovery.and_then(|it| endpoint_discovery(it, findings)) {
            let discovery = require(declared, &name, &[DISCOVERY], at, findings);
            if let Some(AgentPlugin::FileDiscovery(discovery)) = discovery.and_then(Declared::of_agent) {
                endpoints_file = Some(PathBuf::from(&discovery.path));
            }
        }
    }
    if models.is_none() {
        warn_of_unlisted_models(declared, findings);
    }
    let mut scraping = Scraping::default();
    for declared in source.into_iter().chain(extractor).chain(gpu).chain(models) {
        let Some((path, plugin)) = declared.path.as_ref().zip(declared.of_agent()) else { continue };
        let at = path.parameter("");
        match plugin {
            AgentPlugin::MetricsDataSource(source) => scraping.set_source(source, &at, findings),
            AgentPlugin::CoreMetricsExtractor(extractor) => scraping.set_extractor(extractor, &at, findings),
            AgentPlugin::DcgmDataSource(source) => scraping.set_gpu_source(source, &at, findings),
            AgentPlugin::ModelsDataSource(source) => scraping.set_models_source(source, &at, findings),
            AgentPlugin::DcgmExtractor(_)
            | AgentPlugin::DisaggHeadersHandler(_)
            | AgentPlugin::FileDiscovery(_)
            | AgentPlugin::ModelsDataExtractor(_)
            | AgentPlugin::WithoutEffect(_) => {}
        }
    }
    (scraping, endpoints_file)
}

/// Warns of plugins that would read the models of servers if they were listed.
fn warn_of_unlisted_models(declared: &[Declared], findings: &mut Findings) {
    let publishers = declared.iter().filter(|it| [MODELS_SOURCE, MODELS_EXTRACTOR].contains(&&*it.type_name));
    for (path, plugin) in publishers.filter_map(|it| Some((it.path.as_ref()?, it))) {
        let text = format!(
            "{:?} has no effect here: dataLayer.sources lists no {MODELS_SOURCE} with a {MODELS_EXTRACTOR}",
            plugin.type_name
        );
        findings.warn(format!("{path}.type"), text);
    }
}

/// The plugin that finds endpoints, and the path of its name.
fn endpoint_discovery(discovery: Discovery, findings: &mut Findings) -> Option<(String, &'static str)> {
    const ENDPOINTS: &str = "dataLayer.discovery.endpoints.pluginRef";
    const FORMER: &str = "dataLayer.discovery.pluginRef";
    match (discovery.endpoints, discovery.plugin_ref) {
        (Some(PluginRef { plugin_ref }), former) => {
            if former.is_some() {
                findings.warn(FORMER, "has no effect, because endpoints is given too");
            }
            Some((plugin_ref, ENDPOINTS))
        }
        (None, Some(former)) => Some((former, FORMER)),
        (None, None) if discovery.peers.is_some() => None,
        (None, None) => {
            findings
                .fault("dataLayer.discovery", "names no plugin; allowed are pluginRef, endpoints and peers");
            None
        }
    }
}

/// The plugins that scrape, of the list `dataLayer.sources`.
#[derive(Default)]
struct ScrapingPlugins<'a> {
    metrics: Option<&'a Declared>,
    extractor: Option<&'a Declared>,
    /// A source of GPU metrics with an extractor.
    gpu: Option<&'a Declared>,
    /// A source of models with an extractor.
    models: Option<&'a Declared>,
}

impl<'a> ScrapingPlugins<'a> {
    fn read(sources: &[DataSource], declared: &'a [Declared], findings: &mut Findings) -> Self {
        let mut listed = Self::default();
        for (index, source) in sources.iter().enumerate() {
            let at = format!("dataLayer.sources[{index}]");
            let [endpoints, objects] = NOTIFICATION_SOURCES;
            let types = [SOURCE, GPU_SOURCE, endpoints, objects, MODELS_SOURCE, OBSERVER];
            let plugin = require(declared, &source.plugin_ref, &types, &format!("{at}.pluginRef"), findings);
            let Some(plugin) = plugin else { continue };
            let type_name = plugin.type_name.as_str();
            if type_name == OBSERVER && !source.extractors.is_empty() {
                findings.fault(format!("{at}.extractors"), format!("is not allowed; a {OBSERVER} has none"));
            }
            let mut extractor = None;
            for (index, listed) in source.extractors.iter().enumerate() {
                let (name, at) = (&listed.plugin_ref, format!("{at}.extractors[{index}].pluginRef"));
                let allowed: &[&str] = match type_name {
                    SOURCE => &[EXTRACTOR],
                    GPU_SOURCE => &[GPU_EXTRACTOR],
                    MODELS_SOURCE => &[MODELS_EXTRACTOR],
                    _ => &[],
                };
                extractor = require(declared, name, allowed, &at, findings).or(extractor);
                if !allowed.is_empty() && index > 0 {
                    let text = format!("is not allowed; a {type_name} has at most one extractor");
                    findings.fault(at, format!("{} {text}", quoted(name)));
                }
            }
            let earlier = match type_name {
                SOURCE => {
                    listed.extractor = extractor.or(listed.extractor);
                    listed.metrics.replace(plugin)
                }
                GPU_SOURCE | MODELS_SOURCE if extractor.is_none() => {
                    let needed = if type_name == GPU_SOURCE { GPU_EXTRACTOR } else { MODELS_EXTRACTOR };
                    findings.warn(&at, format!("has no effect: a {type_name} needs a {needed}"));
                    None
                }
                GPU_SOURCE => listed.gpu.replace(plugin),
                MODELS_SOURCE => listed.models.replace(plugin),
                _ => None,
            };
            if earlier.is_some() {
                let text = format!("{} is a second {type_name}; allowed is one", quoted(&source.plugin_ref));
                findings.fault(format!("{at}.pluginRef"), text);
            }
        }
        listed
    }
}

fn find<'a>(declared: &'a [Declared], name: &str) -> Option<&'a Declared> {
    declared.iter().find(|plugin| plugin.name == name)
}

/// The plugin of this name, which has one of these types; any type if there are none.
fn require<'a>(
    declared: &'a [Declared],
    name: &str,
    types: &[&str],
    at: &str,
    findings: &mut Findings,
) -> Option<&'a Declared> {
    match find(declared, name) {
        Some(found) if types.is_empty() || types.contains(&found.type_name.as_str()) => return Some(found),
        Some(other) => {
            let text = format!("{} is a {}; allowed: {}", quoted(name), other.type_name, types.join(", "));
            findings.fault(at, text);
        }
        None => {
            let names: Vec<_> = declared.iter().map(|plugin| plugin.name.as_str()).collect();
            let text = format!("no plugin is named {}; declared are {}", quoted(name), names.join(", "));
            findings.fault(at, text);
        }
    }
    None
}

/// Warns of fields that make replicas of the EPP find each other and share state.
fn warn_of_replicas(data_layer: &DataLayer, findings: &mut Findings) {
    let peers = data_layer.discovery.as_ref().is_some_and(|discovery| discovery.peers.is_some());
    for (field, is_given) in [
        ("discovery.peers", peers),
        ("peerDiscovery", data_layer.peer_discovery.is_some()),
        ("crossReplica", data_layer.cross_replica.is_some()),
        ("crossReplicaSyncerPluginRef", data_layer.cross_replica_syncer_plugin_ref.is_some()),
        ("crossReplicaSyncInterval", data_layer.cross_replica_sync_interval.is_some()),
        ("crossReplicaPublishTimeout", data_layer.cross_replica_publish_timeout.is_some()),
    ] {
        if is_given {
            let text = "has no effect here: proxies share their changes through the agents (--share)";
            findings.warn(format!("dataLayer.{field}"), text);
        }
    }
}
