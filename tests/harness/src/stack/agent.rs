//! The agent of a stack.

use crate::config::EDS_FILE;
use crate::program::Agent;
use anyhow::Result;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;

pub(super) const DISCOVERY_FILE: &str = "endpoints.yaml";
pub(super) const MANIFESTS_FILE: &str = "manifests.yaml";

/// The files that the agent writes for Envoy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eds {
    file: &'static str,
    cluster: &'static str,
}

impl Eds {
    pub(super) const ONE_POOL: Self = Self { file: EDS_FILE, cluster: "model-servers" };
    pub(super) const EACH_POOL: Self = Self { file: "eds/{pool}.yaml", cluster: "{pool}" };
}

/// Starts the agent with these further flags; with `eds` it writes Envoy's endpoints. Unless they name rules,
/// pools without a configuration have the EPP's, by which a test can tell where a request goes.
pub(super) async fn start_agent(
    listen: SocketAddr,
    dir: &Path,
    eds: Option<Eds>,
    more: &[String],
) -> Result<Agent> {
    let discovery = dir.join(DISCOVERY_FILE);
    let eds = eds.map(|eds| (dir.join(eds.file), eds.cluster));
    let mut flags: Vec<&OsStr> = vec!["--endpoints-file".as_ref(), discovery.as_os_str()];
    if let Some((file, cluster)) = &eds {
        flags.extend(["--eds-file".as_ref(), file.as_os_str(), "--eds-cluster".as_ref(), cluster.as_ref()]);
    }
    let manifests = dir.join(MANIFESTS_FILE);
    if manifests.exists() {
        flags.extend(["--manifests".as_ref(), manifests.as_os_str()]);
    }
    if !more.iter().any(|flag| flag == "--rules") {
        flags.extend(["--rules", "epp"].map(OsStr::new));
    }
    flags.extend(more.iter().map(OsStr::new));
    Agent::start(listen, flags, &dir.join("agent.log")).await
}
