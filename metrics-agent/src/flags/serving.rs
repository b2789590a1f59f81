//! How the agent's own API is served.

use core::time::Duration;
use std::path::PathBuf;

use clap::Args;

use super::values::{count, duration, header_bytes};
use crate::api::access::credentials::{Files, TlsFiles};
use crate::api::access::hosts::{AllowedHosts, allowed_host};
use crate::api::connections::listen::Limits;

/// How the agent's own API is served.
#[derive(Args, Debug)]
#[command(next_help_heading = "The agent's own API")]
pub(super) struct ServeFlags {
    /// Most requests of filters that may wait for news at the same time; more are answered 503.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    max_waiters: u16,

    /// Most connections; further ones wait until one ends.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,

    /// Longest request line with its headers, from 8192; a longer one is answered 431.
    #[arg(long, value_name = "BYTES", default_value_t = 16 * 1024, value_parser = header_bytes)]
    max_header_bytes: usize,

    /// A connection is closed when a handshake, or the headers of its next request, have not come whole within this time. The
    /// body of a report has as long.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    idle_timeout: Duration,

    /// A connection is closed when its client takes nothing of an answer for this long.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    write_timeout: Duration,

    /// The same when its client takes longer for all of an answer, however steadily.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    answer_timeout: Duration,

    /// Largest report of a proxy; a larger one is answered 413. An endpoint takes some 30 bytes of it.
    #[arg(long, value_name = "BYTES", default_value_t = 4 * 1024 * 1024, value_parser = count)]
    max_report_bytes: usize,

    /// Most proxies that may report on one pool; the reports of others are refused.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count)]
    max_proxies: usize,

    /// A name or an IP address by which the agent may be asked (`host: …`), without a port; may be repeated. Its own address,
    /// localhost on a loopback address, and metrics-agent, the name that filters use, are always allowed.
    #[arg(long, value_name = "NAME", value_parser = allowed_host)]
    allowed_host: Vec<String>,

    /// Certificate chain of the agent's API, in PEM: the API is then served over TLS. Read again when it changes, as are
    /// all files of certificates, keys and tokens.
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Key of --tls-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Authorities, in PEM: clients must show a certificate of one of them, except for /healthz and /readyz.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Tokens, one on each line: clients must show one (`authorization: Bearer …`), except for /healthz and /readyz.
    #[arg(long, value_name = "PATH")]
    bearer_token_file: Option<PathBuf>,
}

impl ServeFlags {
    pub(super) fn max_waiters(&self) -> usize {
        usize::from(self.max_waiters)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_connections: usize::from(self.max_connections),
            max_header_bytes: self.max_header_bytes,
            idle_timeout: self.idle_timeout,
            write_timeout: self.write_timeout,
            answer_timeout: self.answer_timeout,
            max_report_bytes: self.max_report_bytes,
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
        Files { tls, tokens: self.bearer_token_file }
    }
}
