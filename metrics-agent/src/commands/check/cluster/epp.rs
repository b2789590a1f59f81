//! What differs from the EPP that is installed for a pool.

use serde_json::Value as Json;

use super::deployment::{ConfigSource, Epp};
use super::read::{Reader, Resource};
use super::report::Report;
use crate::catalogue::cluster::{ConfigCheck, Settings};
use crate::catalogue::differences;
use crate::sources::kubernetes::{ApiError, ClusterObject, ClusterObjects, ObjectId};

const SERVICES: Resource = Resource { api: "/api/v1", plural: "services" };
const DEPLOYMENTS: Resource = Resource { api: "/apis/apps/v1", plural: "deployments" };
const CONFIG_MAPS: Resource = Resource { api: "/api/v1", plural: "configmaps" };

/// Adds what differs from the EPP of each pool.
pub(super) async fn add(report: &mut Report, objects: &ClusterObjects, reader: &Reader, settings: &Settings) {
    let pools = objects.0.iter().filter(|object| object.id.kind == "InferencePool");
    let pools: Vec<_> = pools.map(|pool| &**pool).collect();
    if pools.is_empty() {
        return;
    }
    let (services, deployments) = match lists(reader).await {
        Ok(lists) => lists,
        Err(error) => {
            report.line(format_args!("the EPPs were not read: {error}"));
            return;
        }
    };
    for pool in pools {
        let Some(epp) = Epp::of_pool(pool, &services, &deployments) else { continue };
        let config = config(&epp, pool, reader).await;
        add_epp(report, pool, &epp, config.as_ref().map_err(ToString::to_string), settings);
    }
}

async fn lists(reader: &Reader) -> Result<(Vec<Json>, Vec<Json>), ApiError> {
    let services = reader.list(SERVICES, None).await?.unwrap_or_default();
    Ok((services, reader.list(DEPLOYMENTS, None).await?.unwrap_or_default()))
}

/// The text of an EPP's configuration; `None`: it has none that can be read.
async fn config(epp: &Epp, pool: &ClusterObject, reader: &Reader) -> Result<Option<String>, ApiError> {
    match &epp.config {
        None | Some(ConfigSource::File(_)) => Ok(None),
        Some(ConfigSource::Text(text)) => Ok(Some(text.clone())),
        Some(ConfigSource::ConfigMap { name, key }) => {
            let object = reader.object(CONFIG_MAPS, &pool.id.namespace, name).await?;
            let text = object.as_ref().and_then(|object| object.get("data")?.get(key)?.as_str());
            Ok(text.map(str::to_owned))
        }
    }
}

fn add_epp(
    report: &mut Report,
    pool: &ClusterObject,
    epp: &Epp,
    config: Result<&Option<String>, String>,
    settings: &Settings,
) {
    let (namespace, name) = (&pool.id.namespace, &pool.id.name);
    report.line(format_args!("EPP of pool \"{namespace}/{name}\": Deployment {}", epp.deployment));
    let flags: Vec<_> = epp.flags.iter().map(|(name, _)| format!("--{name}")).collect();
    for difference in differences::of_flags(flags.iter().map(String::as_str)) {
        report.detail(difference);
    }
    match (&epp.config, config) {
        (None, _) => {}
        (Some(source), Err(error)) => report.detail(format_args!("{}: not read: {error}", place(source))),
        (Some(source), Ok(None)) => report.detail(format_args!("{}: not found", place(source))),
        (Some(source), Ok(Some(text))) => add_config(report, pool, source, text, settings),
    }
}

fn add_config(
    report: &mut Report,
    pool: &ClusterObject,
    source: &ConfigSource,
    text: &str,
    settings: &Settings,
) {
    let at = place(source);
    let id = ObjectId {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: pool.id.namespace.clone(),
        name: epp_config_name(source),
    };
    let ConfigCheck { problems, warnings, differences } = ConfigCheck::new(&id, text, settings);
    for warning in &warnings {
        report.detail(format_args!("{at}: {warning}"));
    }
    for difference in differences {
        report.detail(format_args!("{at}: {difference}"));
    }
    if !problems.is_empty() {
        let of = format!(
            "refused: configuration of the EPP of pool \"{}/{}\", {at}",
            pool.id.namespace, pool.id.name
        );
        report.problem(&of, problems.iter());
    }
}

fn epp_config_name(source: &ConfigSource) -> String {
    match source {
        ConfigSource::ConfigMap { name, .. } => name.clone(),
        ConfigSource::Text(_) | ConfigSource::File(_) => String::new(),
    }
}

fn place(source: &ConfigSource) -> String {
    match source {
        ConfigSource::Text(_) => "--config-text".to_owned(),
        ConfigSource::ConfigMap { name, key } => format!("key {key} of ConfigMap {name}"),
        ConfigSource::File(path) => format!("file {path}"),
    }
}
