//! The shipped proxy as a measurement starts it.

use anyhow::{Result, ensure};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::{Config, Places};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::statistics::PickerStatistics;
use std::path::Path;
use std::time::Duration;

const PICKING_DEADLINE: Duration = Duration::from_secs(20);
const ROUTED: &str = r#"routed{pool="default"}"#;

/// The shipped configuration without an access log, which would cost all proxies the same and hide the difference.
pub(crate) fn config(filter: Filter, folder: &Path, agent_port: u16) -> Result<Config> {
    let mut config =
        Config::shipped("envoy.yaml", filter, Places { port: 0, admin_port: 0, agent_port, folder })?;
    config.remove_access_log()?;
    Ok(config)
}

/// Waits until the picker has routed a request.
pub(crate) async fn wait_until_picking(envoy: &Envoy) -> Result<()> {
    let client = client::http1();
    let url = format!("http://{}/v1/chat/completions", envoy.listener());
    let picking = within(PICKING_DEADLINE, async || {
        client.post(&url).json(&client::chat("hello")).send().await?.error_for_status()?;
        ensure!(PickerStatistics::of(envoy).await?.count(ROUTED) > 0, "the picker has routed no request");
        Ok(())
    });
    picking.await.map_err(anyhow::Error::msg)
}
