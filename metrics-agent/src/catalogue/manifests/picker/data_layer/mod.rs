//! `dataLayer`: the declared plugins by which the agent scrapes servers and finds endpoints.

pub(super) mod scraping;

use std::path::PathBuf;

use scraping::Scraping;

use super::Findings;
use super::agent_plugins::AgentPlugin;
use super::document::{DataLayer, PluginRef};
use super::plugins::Declared;
use crate::catalogue::manifests::fault::quoted;

const SOURCE: &str = "metrics-data-source";
const EXTRACTOR: &str = "core-metrics-extractor";
const DISCOVERY: &str = "file-discovery";

/// The scraping settings and the endpoints file of a configuration.
pub(super) fn read(
    data_layer: Option<DataLayer>,
    declared: &[Declared],
    findings: &mut Findings,
) -> (Scraping, Option<PathBuf>) {
    // Without `dataLayer`, the plugins named as their types are used.
    let mut source = find(declared, SOURCE);
    let mut extractor = find(declared, EXTRACTOR);
    let mut endpoints_file = None;
    if let Some(data_layer) = data_layer {
        refuse_replicas(&data_layer, findings);
        if !data_layer.inject_defaults && data_layer.sources.is_empty() {
            findings.warn("dataLayer.injectDefaults", "is false, but the agent always scrapes");
        }
        let names = data_layer.sources.iter().map(|source| source.plugin_ref.as_str());
        source = only(names, declared, SOURCE, "dataLayer.sources", findings).or(source);
        let extractors = data_layer.sources.first().map_or(&[][..], |source| &source.extractors);
        let names = extractors.iter().map(|extractor| extractor.plugin_ref.as_str());
        extractor =
            only(names, declared, EXTRACTOR, "dataLayer.sources[0].extractors", findings).or(extractor);
        if let Some(PluginRef { plugin_ref }) = data_layer.discovery {
            let discovery =
                require(declared, &plugin_ref, DISCOVERY, "dataLayer.discovery.pluginRef", findings);
            if let Some(AgentPlugin::FileDiscovery(discovery)) = discovery.and_then(Declared::of_agent) {
                endpoints_file = Some(PathBuf::from(&discovery.path));
            }
        }
    }
    let mut scraping = Scraping::default();
    for declared in source.into_iter().chain(extractor) {
        let Some((path, plugin)) = declared.path.as_ref().zip(declared.of_agent()) else { continue };
        let at = path.parameter("");
        match plugin {
            AgentPlugin::MetricsDataSource(source) => scraping.set_source(source, &at, findings),
            AgentPlugin::CoreMetricsExtractor(extractor) => scraping.set_extractor(extractor, &at, findings),
            AgentPlugin::DisaggHeadersHandler(_) | AgentPlugin::FileDiscovery(_) => {}
        }
    }
    (scraping, endpoints_file)
}

fn find<'a>(declared: &'a [Declared], name: &str) -> Option<&'a Declared> {
    declared.iter().find(|plugin| plugin.name == name)
}

/// The one plugin that the list at the path `at` refers to.
fn only<'a, 'b>(
    names: impl Iterator<Item = &'b str>,
    declared: &'a [Declared],
    type_name: &str,
    at: &str,
    findings: &mut Findings,
) -> Option<&'a Declared> {
    let mut first = None;
    for (index, name) in names.enumerate() {
        let at = format!("{at}[{index}].pluginRef");
        if index == 0 {
            first = require(declared, name, type_name, &at, findings);
        } else {
            findings.fault(at, format!("{} is not allowed; the list has at most one entry", quoted(name)));
        }
    }
    first
}

fn require<'a>(
    declared: &'a [Declared],
    name: &str,
    type_name: &str,
    at: &str,
    findings: &mut Findings,
) -> Option<&'a Declared> {
    match find(declared, name) {
        Some(found) if found.type_name == type_name => return Some(found),
        Some(other) => {
            let text = format!("{} is a {}; allowed: {type_name}", quoted(name), other.type_name);
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

/// Refuses fields that make replicas of the EPP share state: replicas of the agent share none.
fn refuse_replicas(data_layer: &DataLayer, findings: &mut Findings) {
    for (field, is_given) in [
        ("peerDiscovery", data_layer.peer_discovery.is_some()),
        ("crossReplicaSyncerPluginRef", data_layer.cross_replica_syncer_plugin_ref.is_some()),
        ("crossReplicaSyncInterval", data_layer.cross_replica_sync_interval.is_some()),
    ] {
        if is_given {
            findings.fault(format!("dataLayer.{field}"), "is not supported; leave it out");
        }
    }
}
