//! `dataLayer`: which of the declared plugins the agent reads data with.

use std::path::PathBuf;

use endpoint_picker::plugin::registry::AnyPlugin;

use super::Report;
use super::document::{DataLayer, Reference};
use super::plugins::Declared;
use super::scraping::Scraping;
use crate::catalogue::manifests::fault::quoted;

const SOURCE: &str = "metrics-data-source";
const EXTRACTOR: &str = "core-metrics-extractor";
const DISCOVERY: &str = "file-discovery";

/// The scraping and the endpoints file that a configuration asks for.
pub(super) fn read(
    data_layer: Option<DataLayer>,
    declared: &[Declared],
    report: &mut Report,
) -> (Scraping, Option<PathBuf>) {
    // Those that are in use if nothing else is said; the EPP adds them if they are not declared.
    let mut source = find(declared, SOURCE);
    let mut extractor = find(declared, EXTRACTOR);
    let mut endpoints_file = None;
    if let Some(data_layer) = data_layer {
        refuse_replicas(&data_layer, report);
        if !data_layer.inject_defaults && data_layer.sources.is_empty() {
            report.warn("dataLayer.injectDefaults", "is false, but the agent scrapes in any case");
        }
        let names = data_layer.sources.iter().map(|source| source.plugin_ref.as_str());
        source = only(names, declared, SOURCE, "dataLayer.sources", report).or(source);
        let extractors = data_layer.sources.first().map_or(&[][..], |source| &source.extractors);
        let names = extractors.iter().map(|extractor| extractor.plugin_ref.as_str());
        extractor = only(names, declared, EXTRACTOR, "dataLayer.sources[0].extractors", report).or(extractor);
        if let Some(Reference { plugin_ref }) = data_layer.discovery {
            let discovery =
                require(declared, &plugin_ref, DISCOVERY, "dataLayer.discovery.pluginRef", report);
            if let Some(AnyPlugin::FileDiscovery(discovery)) = discovery.map(|declared| &declared.plugin) {
                endpoints_file = Some(PathBuf::from(&discovery.path));
            }
        }
    }
    let mut scraping = Scraping::default();
    for Declared { index, plugin, .. } in source.into_iter().chain(extractor) {
        let at = format!("plugins[{index}].parameters");
        match plugin {
            AnyPlugin::MetricsDataSource(source) => scraping.set_source(source, &at, report),
            AnyPlugin::CoreMetricsExtractor(extractor) => scraping.set_extractor(extractor, &at, report),
            _ => {}
        }
    }
    (scraping, endpoints_file)
}

fn find<'a>(declared: &'a [Declared], name: &str) -> Option<&'a Declared> {
    declared.iter().find(|plugin| plugin.name == name)
}

/// The one plugin that a list at `at` refers to.
fn only<'a, 'b>(
    names: impl Iterator<Item = &'b str>,
    declared: &'a [Declared],
    type_name: &str,
    at: &str,
    report: &mut Report,
) -> Option<&'a Declared> {
    let mut found = None;
    for (index, name) in names.enumerate() {
        let at = format!("{at}[{index}].pluginRef");
        if index == 0 {
            found = require(declared, name, type_name, &at, report);
        } else {
            report.fault(at, format!("{} is one too many; allowed is one", quoted(name)));
        }
    }
    found
}

fn require<'a>(
    declared: &'a [Declared],
    name: &str,
    type_name: &str,
    at: &str,
    report: &mut Report,
) -> Option<&'a Declared> {
    match find(declared, name) {
        Some(found) if found.plugin.type_name() == type_name => return Some(found),
        Some(other) => {
            let text = format!("{} is a {}; allowed: {type_name}", quoted(name), other.plugin.type_name());
            report.fault(at, text);
        }
        None => {
            let names: Vec<_> = declared.iter().map(|plugin| plugin.name.as_str()).collect();
            let text = format!("no plugin is named {}; declared are {}", quoted(name), names.join(", "));
            report.fault(at, text);
        }
    }
    None
}

/// Replicas of the EPP's picker may share state; the agent is one for all.
fn refuse_replicas(data_layer: &DataLayer, report: &mut Report) {
    for (field, is_given) in [
        ("peerDiscovery", data_layer.peer_discovery.is_some()),
        ("crossReplicaSyncerPluginRef", data_layer.cross_replica_syncer_plugin_ref.is_some()),
        ("crossReplicaSyncInterval", data_layer.cross_replica_sync_interval.is_some()),
    ] {
        if is_given {
            report.fault(format!("dataLayer.{field}"), "is not supported; leave it out");
        }
    }
}
