//! Flags about the agent's API.

use core::time::Duration;
use std::path::PathBuf;

use clap::Args;

use super::values::{FlagError, count, duration};
use crate::api::access::credentials::{Files, TlsFiles, Unauthenticated};
use crate::api::access::{AllowedHosts, allowed_host};
use crate::api::connections::Limits;
use crate::sharing::Share;
use crate::store::{NodeRole, StoreAddress};

/// Flags about the agent's API.
#[derive(Args, Debug)]
#[command(next_help_heading = "The agent's own API")]
pub(super) struct ServeFlags {
    /// Maximum number of connections. For a new one the oldest of the address that has most is closed, unless
    /// its client may write. Half of them may wait for a newer snapshot or cached prefixes.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,

    /// Maximum number of connections of one address (IPv6: of one network of 64 bits). For a new one its
    /// oldest is closed, unless its client may write.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections_per_peer: u16,

    /// Maximum time for a handshake, for the headers of the next request, and for the body of a report; then
    /// the connection is closed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    idle_timeout: Duration,

    /// Maximum time in which a client reads nothing of a response; then the connection is closed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    write_timeout: Duration,

    /// Maximum time for a whole response; then the connection is closed.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    answer_timeout: Duration,

    /// Maximum number of proxies that may report on a pool; reports of others are refused.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count)]
    max_proxies: usize,

    /// A host name or an IP address that requests may have as `host`, without a port; may be repeated. The
    /// agent's own address, localhost on a loopback address, and metrics-agent, the name that filters use,
    /// are always allowed.
    #[arg(long, value_name = "NAME", value_parser = allowed_host)]
    allowed_host: Vec<String>,

    /// Certificate chain of the agent's API, in PEM, for TLS. Read again when it changes, like all files of
    /// certificates, keys and tokens.
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Key of --tls-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Authorities of client certificates, in PEM. All requests except /healthz and /readyz then require a
    /// certificate. A client with a certificate may write, and so steers all proxies.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// A file with tokens, one on each line. All requests except /healthz and /readyz then require one
    /// (`authorization: Bearer …`). A client with such a token may write (report, and share changes), and so
    /// steers all proxies.
    #[arg(long, value_name = "PATH")]
    bearer_token_file: Option<PathBuf>,

    /// A file with further tokens, which may only read: snapshots, the page and metrics.
    #[arg(long, value_name = "PATH", requires = "bearer_token_file")]
    read_token_file: Option<PathBuf>,

    /// Leaves reading open to all clients, although writing takes a token of --bearer-token-file or a
    /// certificate.
    #[arg(long, conflicts_with = "read_token_file")]
    allow_unauthenticated_reads: bool,

    /// Lets clients on other hosts write without a token or a certificate. Any client that reaches the port
    /// then steers all proxies. Without this flag only clients on the agent's own host may write, by a
    /// loopback address.
    #[arg(long, conflicts_with_all = ["bearer_token_file", "tls_client_ca"])]
    allow_unauthenticated_writes: bool,
}

impl ServeFlags {
    pub(super) fn max_waiters(&self) -> usize {
        usize::from(self.max_connections).div_ceil(2)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_connections: usize::from(self.max_connections),
            max_connections_per_peer: usize::from(self.max_connections_per_peer),
            idle_timeout: self.idle_timeout,
            write_timeout: self.write_timeout,
            answer_timeout: self.answer_timeout,
            max_proxies: self.max_proxies,
        }
    }

    pub(super) fn allowed_hosts(&self) -> AllowedHosts {
        AllowedHosts(self.allowed_host.clone())
    }

    pub(super) fn credentials(self) -> Files {
        let tls = self.tls_cert.zip(self.tls_key).map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_authorities: self.tls_client_ca,
        });
        let unauthenticated = Unauthenticated {
            reads: self.allow_unauthenticated_reads,
            writes: self.allow_unauthenticated_writes,
        };
        Files { tls, tokens: self.bearer_token_file, read_tokens: self.read_token_file, unauthenticated }
    }
}

/// Flags about changes that proxies share.
#[derive(Args, Debug)]
#[command(next_help_heading = "Changes that proxies share")]
pub(super) struct ShareFlags {
    /// Which proxies of a pool share what their requests change: prompts, sessions, loads and failures.
    /// `off`: none. `agent`: the proxies of this agent. URLs of a Valkey or Redis store, separated by commas:
    /// the proxies of all agents with this store, such as `redis://USER:PASSWORD@10.0.0.9:6379`, or
    /// `rediss://…` for TLS. Agents with one store also scrape each server once for all of them.
    #[arg(long, value_name = "off|agent|URLS", env = "METRICS_AGENT_SHARE", hide_env_values = true,
        default_value = "agent", value_parser = share)]
    share: Share,

    /// The URLs of --share name nodes of a cluster.
    #[arg(long, conflicts_with = "share_sentinel")]
    share_cluster: bool,

    /// The URLs of --share name sentinels, and this is the service whose primary is the store. The servers
    /// have the sentinels' credentials.
    #[arg(long, value_name = "SERVICE")]
    share_sentinel: Option<String>,

    /// Authorities of the store's certificates, in PEM, in place of the system's.
    #[arg(long, value_name = "PATH")]
    share_ca: Option<PathBuf>,
}

fn share(text: &str) -> Result<Share, String> {
    match text {
        "off" => Ok(Share::Off),
        "agent" => Ok(Share::Agent),
        urls => StoreAddress::parse(urls).map(Share::Store),
    }
}

impl ShareFlags {
    /// Which proxies share.
    pub(super) fn share(self) -> Result<Share, FlagError> {
        let Self { share, share_cluster, share_sentinel, share_ca } = self;
        let nodes = match share_sentinel {
            Some(service) => NodeRole::Sentinels(service),
            None if share_cluster => NodeRole::Cluster,
            None => NodeRole::Single,
        };
        let needs_store = nodes != NodeRole::Single || share_ca.is_some();
        match share {
            Share::Store(address) => address.with(nodes, share_ca).map(Share::Store).map_err(FlagError),
            Share::Off | Share::Agent if needs_store => {
                let problem = "--share-cluster, --share-sentinel and --share-ca require --share with URLs";
                Err(FlagError(problem.to_owned()))
            }
            share @ (Share::Off | Share::Agent) => Ok(share),
        }
    }
}
