//! Flags about changes that proxies share.

use std::path::PathBuf;

use clap::Args;

use super::error::FlagError;
use crate::sharing::Share;
use crate::store::{Nodes, StoreAddress};

/// Flags about changes that proxies share.
#[derive(Args, Debug)]
#[command(next_help_heading = "Changes that proxies share")]
pub(super) struct ShareFlags {
    /// Which proxies of a pool share what their requests change: prompts, sessions, loads and failures. `off`: none. `agent`: those of this
    /// agent. URLs of a Valkey or Redis store, separated by commas: those of all agents with this store, such as
    /// `redis://USER:PASSWORD@10.0.0.9:6379`, or `rediss://…` for TLS.
    #[arg(long, value_name = "off|agent|URLS", env = "METRICS_AGENT_SHARE", hide_env_values = true,
        default_value = "agent", value_parser = share)]
    share: Share,

    /// The URLs of --share name nodes of a cluster.
    #[arg(long, conflicts_with = "share_sentinel")]
    share_cluster: bool,

    /// The URLs of --share name sentinels, and this is the service whose primary is the store. The servers have the sentinels' credentials.
    #[arg(long, value_name = "SERVICE")]
    share_sentinel: Option<String>,

    /// Authorities of the store's certificates, in PEM, in place of the system's.
    #[arg(long, value_name = "PATH")]
    share_ca: Option<PathBuf>,

    /// Agents with the same --share URLs scrape each server once for all of them, not once each. They need the same flags and manifests.
    #[arg(long)]
    share_readings: bool,
}

fn share(text: &str) -> Result<Share, String> {
    match text {
        "off" => Ok(Share::Off),
        "agent" => Ok(Share::Agent),
        urls => StoreAddress::parse(urls).map(Share::Store),
    }
}

impl ShareFlags {
    /// Which proxies share, and whether agents share readings.
    pub(super) fn share(self) -> Result<(Share, bool), FlagError> {
        let Self { share, share_cluster, share_sentinel, share_ca, share_readings } = self;
        let nodes = match share_sentinel {
            Some(service) => Nodes::Sentinels(service),
            None if share_cluster => Nodes::Cluster,
            None => Nodes::Single,
        };
        let needs_store = nodes != Nodes::Single || share_ca.is_some() || share_readings;
        match share {
            Share::Store(address) => {
                let address = address.with(nodes, share_ca).map_err(FlagError)?;
                Ok((Share::Store(address), share_readings))
            }
            Share::Off | Share::Agent if needs_store => {
                let problem = "--share-cluster, --share-sentinel, --share-ca and --share-readings require --share with URLs";
                Err(FlagError(problem.to_owned()))
            }
            share @ (Share::Off | Share::Agent) => Ok((share, false)),
        }
    }
}
