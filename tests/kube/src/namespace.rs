//! The network namespace that `tools/kube/namespace` gives to a test program.

use anyhow::{Context, Result};
use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The address of the namespace in the network of the pods, 10.200.0.0/16; the API server and the DNS server
/// listen there.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
/// The bridge of that network.
pub(crate) const BRIDGE: &str = "pods";

/// The namespace of this process.
#[derive(Clone, Debug)]
pub struct Namespace {
    folder: PathBuf,
}

impl Namespace {
    /// The namespace; `None` for a program that was started without one.
    pub fn current() -> Option<Self> {
        Some(Self { folder: env::var_os("KUBE_GROUND")?.into() })
    }

    /// The namespace, which pods and Envoy Gateway need.
    pub fn required() -> Result<Self> {
        Self::current().context(
            "no network namespace: run `make test-kube` as root, or where the kernel permits user namespaces, with iproute2 installed",
        )
    }

    /// A folder in memory, which ends with the namespace.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that every program here has as /certs.
    pub fn certificates(&self) -> PathBuf {
        self.folder.join("certs")
    }

    /// The files that every program here has in /etc: only the host itself has its name from a file.
    pub(crate) fn name_files(&self) -> [PathBuf; 2] {
        ["hosts", "resolv.conf"].map(|file| self.folder.join(file))
    }
}
