//! `dataLayer`: which of the agent's own plugins are in use.

use std::path::PathBuf;
use std::sync::Arc;

use super::Report;
use super::document::{DataLayer, Reference};
use super::plugins::{DISCOVERY, DataPlugin, Declared, EXTRACTOR, SOURCE};
use super::scraping::Scraping;
use crate::manifests::problem::quoted;

/// The scraping and the endpoints file that a configuration asks for.
pub(super) fn read(
    data_layer: Option<DataLayer>,
    declared: &Declared,
    report: &mut Report,
) -> (Scraping, Option<PathBuf>) {
    let mut source = SOURCE.to_owned();
    let mut extractor = EXTRACTOR.to_owned();
    let mut endpoints_file = None;
    if let Some(data_layer) = data_layer {
        refuse_replicas(&data_layer, report);
        if !data_layer.inject_defaults && data_layer.sources.is_empty() {
            report.warn("dataLayer.injectDefaults", "is false, but the agent scrapes in any case");
        }
        for (index, given) in data_layer.sources.into_iter().enumerate() {
            let at = format!("dataLayer.sources[{index}]");
            if index > 0 {
                report.fault(
                    at,
                    format!("{} is one too many; allowed is one source", quoted(&given.plugin_ref)),
                );
                continue;
            }
            require(declared, &given.plugin_ref, SOURCE, &format!("{at}.pluginRef"), report);
            source = given.plugin_ref;
            for (index, Reference { plugin_ref }) in given.extractors.into_iter().enumerate() {
                let at = format!("{at}.extractors[{index}]");
                if index > 0 {
                    report.fault(
                        at,
                        format!("{} is one too many; allowed is one extractor", quoted(&plugin_ref)),
                    );
                    continue;
                }
                require(declared, &plugin_ref, EXTRACTOR, &format!("{at}.pluginRef"), report);
                extractor = plugin_ref;
            }
        }
        if let Some(Reference { plugin_ref }) = data_layer.discovery {
            require(declared, &plugin_ref, DISCOVERY, "dataLayer.discovery.pluginRef", report);
            if let Some(DataPlugin::Discovery(discovery)) = declared.data.get(&plugin_ref) {
                endpoints_file = Some(discovery.path.0.clone());
            }
        }
    }
    (scraping(&source, &extractor, declared), endpoints_file)
}

fn scraping(source: &str, extractor: &str, declared: &Declared) -> Scraping {
    let mut scraping = Scraping::default();
    if let Some(DataPlugin::Source(source)) = declared.data.get(source) {
        scraping.path = source.path.as_ref().map(|path| path.0.clone());
        scraping.port = source.port.map(|port| port.0);
        scraping.interval = source.interval.and_then(|interval| interval.0);
    }
    if let Some(DataPlugin::Extractor(dialects)) = declared.data.get(extractor) {
        scraping.dialects = Arc::clone(dialects);
    }
    scraping
}

fn require(declared: &Declared, name: &str, type_name: &str, at: &str, report: &mut Report) {
    let declared_type = declared.data_plugin_type(name);
    if declared_type == Some(type_name) {
        return;
    }
    let known = declared_type.is_some() || declared.deciding.iter().any(|plugin| plugin.name == name);
    let text = if known {
        format!("{} is no {type_name}", quoted(name))
    } else {
        format!("no plugin is named {}; declared are {}", quoted(name), declared.names())
    };
    report.fault(at, text);
}

fn refuse_replicas(data_layer: &DataLayer, report: &mut Report) {
    for (field, given) in [
        ("peerDiscovery", data_layer.peer_discovery.is_some()),
        ("crossReplicaSyncerPluginRef", data_layer.cross_replica_syncer_plugin_ref.is_some()),
        ("crossReplicaSyncInterval", data_layer.cross_replica_sync_interval.is_some()),
    ] {
        if given {
            report.fault(format!("dataLayer.{field}"), "is not supported; leave it out");
        }
    }
}
