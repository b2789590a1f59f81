//! The shipped proxy as a measurement starts it.

use crate::epp::ext_proc;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::{Config, PICKER, Places};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::statistics::PickerStatistics;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const READY_DEADLINE: Duration = Duration::from_secs(20);
/// The copy of the picker's header in metadata, which only our filter needs.
pub const COPY: &str = "destination-metadata";
const ROUTED: &str = r#"routed{pool="default"}"#;

/// The shipped configuration without an access log, which would cost all proxies the same and hide the
/// difference.
pub fn config(filter: Filter, folder: &Path, agent_port: u16) -> Result<Config> {
    let mut config =
        Config::shipped("envoy.yaml", filter, Places { port: 0, admin_port: 0, agent_port, folder })?;
    config.remove_access_log()?;
    Ok(config)
}

/// The shipped proxy with the EPP in place of our filter. The EPP writes the metadata itself.
pub fn with_epp(folder: &Path, port: u16) -> Result<Config> {
    let mut config = config(Filter::Wasm, folder, 1)?;
    let filters = http_filters(&mut config)?;
    filters.retain(|filter| filter["name"] != COPY);
    *filters.iter_mut().find(|filter| filter["name"] == PICKER).context("our filter")? = ext_proc::filter();
    let clusters = config.document()["static_resources"]["clusters"].as_array_mut().context("clusters")?;
    clusters.push(ext_proc::cluster(port));
    Ok(config)
}

/// The HTTP filters of its listener.
pub fn http_filters(config: &mut Config) -> Result<&mut Vec<Value>> {
    let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
    config.document().pointer_mut(filters).and_then(|filters| filters.as_array_mut()).context("HTTP filters")
}

/// Waits until the picker has routed a request.
pub async fn wait_until_picking(envoy: &Envoy) -> Result<()> {
    let client = client::http1();
    let url = format!("http://{}/v1/chat/completions", envoy.listener());
    let picking = within(READY_DEADLINE, async || {
        client.post(&url).json(&client::chat("hello")).send().await?.error_for_status()?;
        ensure!(PickerStatistics::of(envoy).await?.count(ROUTED) > 0, "the picker has routed no request");
        Ok(())
    });
    picking.await.map_err(anyhow::Error::msg)
}

/// Waits until eight new connections for each worker are served.
pub async fn wait_until_serving(envoy: &Envoy, workers: u32) -> Result<()> {
    let client = client::http1();
    let url = format!("http://{}/v1/chat/completions", envoy.listener());
    let serving = within(READY_DEADLINE, async || {
        for _ in 0..workers * 8 {
            client.post(&url).json(&client::chat("hello")).send().await?.error_for_status()?;
        }
        anyhow::Ok(())
    });
    serving.await.map_err(anyhow::Error::msg).context("not all workers serve")
}
