//! The server: gRPC over TLS with certificates of both sides, or in plain text on a loopback address.

pub mod codec;
mod connections;
mod service;
pub mod status;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub use connections::serve;
pub use service::HookService;

use super::settings::HookSettings;

/// Settings of the extension server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// `None`: plain text, on a loopback address alone.
    pub tls: Option<TlsFiles>,
    /// The settings of the hooks.
    pub hooks: Arc<HookSettings>,
}

/// The files for TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients' certificates. Every client needs one.
    pub client_authorities: PathBuf,
}
