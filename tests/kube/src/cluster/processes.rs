//! The programs of a cluster and their flags.

use super::certificates::Certificates;
use crate::namespace::Namespace;
use crate::programs::program;
use anyhow::Result;
use endpoint_picker_harness::program::Process;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

/// Ports on loopback that were free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) api_server: u16,
    etcd: u16,
    etcd_peers: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self> {
        let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // All at once, so that they differ.
        let [api_server, etcd, etcd_peers] = [any()?, any()?, any()?];
        Ok(Self {
            api_server: api_server.local_addr()?.port(),
            etcd: etcd.local_addr()?.port(),
            etcd_peers: etcd_peers.local_addr()?.port(),
        })
    }
}

pub(super) fn start_etcd(ports: Ports, data: &Path, logs: &Path) -> Result<Process> {
    let clients = format!("http://127.0.0.1:{}", ports.etcd);
    let peers = format!("http://127.0.0.1:{}", ports.etcd_peers);
    let mut command = Command::new(program("etcd")?);
    command.arg("--data-dir").arg(data.join("etcd"));
    for (flag, value) in [
        ("--listen-client-urls", clients.as_str()),
        ("--advertise-client-urls", &clients),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
        ("--initial-cluster", &format!("default={peers}")),
        ("--log-level", "warn"),
    ] {
        command.args([flag, value]);
    }
    // The data need not survive the machine.
    command.arg("--unsafe-no-fsync");
    Process::start("etcd", command, &logs.join("etcd.log"))
}

/// Starts the API server; `attempt` keeps the log of the one before, here and below.
pub(super) fn start_api_server(
    ports: Ports,
    certificates: &Certificates,
    logs: &Path,
    attempt: usize,
) -> Result<Process> {
    // Pods reach it from their own namespaces.
    let listen = if Namespace::current().is_some() { "0.0.0.0" } else { "127.0.0.1" };
    let mut command = Command::new(program("kube-apiserver")?);
    for (flag, file) in [
        ("--tls-cert-file", &certificates.server_certificate),
        ("--tls-private-key-file", &certificates.server_key),
        ("--client-ca-file", &certificates.authority),
        ("--service-account-key-file", &certificates.token_public_key),
        ("--service-account-signing-key-file", &certificates.token_key),
        ("--token-auth-file", &certificates.tokens),
    ] {
        command.arg(flag).arg(file);
    }
    command.args([
        &format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        &format!("--secure-port={}", ports.api_server),
        &format!("--bind-address={listen}"),
        "--advertise-address=127.0.0.1",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        // Webhooks are called at the addresses of pods: cluster IPs lead nowhere here.
        "--enable-aggregator-routing=true",
        // No program reads the EndpointSlice of the Service `kubernetes`, which must not have a loopback
        // address.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
    ]);
    Process::start("kube-apiserver", command, &logs.join(format!("api-server-{attempt}.log")))
}

/// Starts the controllers, which wait for the API server by themselves.
pub(super) fn start_controllers(
    certificates: &Certificates,
    data: &Path,
    logs: &Path,
    attempt: usize,
) -> Result<Process> {
    let mut command = Command::new(program("controllers")?);
    command.arg("--kubeconfig").arg(data.join("kubeconfig"));
    command.arg("--root-ca-file").arg(&certificates.authority);
    Process::start("controllers", command, &logs.join(format!("controllers-{attempt}.log")))
}
