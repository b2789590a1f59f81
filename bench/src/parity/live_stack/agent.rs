//! The agent next to the EPP: both read the same endpoints and the same configuration.

use super::{EMIT_SCORES, SCRAPE_INTERVAL};
use crate::parity::setup::{Comparison, Setup};
use anyhow::{Context, Result};
use endpoint_picker_harness::config::EDS_FILE;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_model_server::ModelServer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

pub(super) async fn start(
    comparison: &Comparison,
    folder: &Path,
    config: &Path,
    endpoints: &Path,
) -> Result<Agent> {
    let eds = folder.join(EDS_FILE);
    // Endpoints that fail are not avoided: the EPP has no such rule.
    let mut flags: Vec<&OsStr> =
        ["--avoid-failing".as_ref(), "0s".as_ref(), "--eds-file".as_ref(), eds.as_os_str()].into();
    flags.extend(["--epp-rules", comparison.rules.as_str()].map(OsStr::new));
    flags.extend([EMIT_SCORES, "--interval", SCRAPE_INTERVAL].map(OsStr::new));
    if comparison.has_config() {
        // The same document that the EPP reads; it has the endpoints as well.
        flags.extend(["--allow-experimental-plugins", "--manifests"].map(OsStr::new));
        flags.push(config.as_os_str());
    } else {
        flags.extend(["--endpoints-file".as_ref(), endpoints.as_os_str()]);
    }
    Agent::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), flags, &folder.join("agent.log")).await
}

/// The list of endpoints, which both pickers read.
pub(super) fn write_endpoints(path: &Path, setup: &Setup, servers: &[ModelServer]) -> Result<()> {
    let endpoint = |(index, server): (usize, &ModelServer)| {
        let labels: BTreeMap<String, String> = setup.labels(index).into_iter().collect();
        let (address, port) = (server.address().ip().to_string(), server.address().port().to_string());
        json!({"name": Setup::endpoint_name(index), "address": address, "port": port, "labels": labels})
    };
    let endpoints: Vec<Value> = servers.iter().enumerate().map(endpoint).collect();
    fs::write(path, json!({"endpoints": endpoints}).to_string()).with_context(|| path.display().to_string())
}
