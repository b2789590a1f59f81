//! Addresses of pods: a network namespace for each, joined to the bridge by a pair of virtual devices.

use crate::namespace::{BRIDGE, HOST_ADDRESS};
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A pod with this annotation gets this address, such as one that another pod has had.
pub(super) const ADDRESS_ANNOTATION: &str = "test/pod-ip";

/// The addresses in use.
#[derive(Debug, Default)]
pub(super) struct Addresses(Arc<Mutex<InUse>>);

#[derive(Debug, Default)]
struct InUse {
    taken: HashSet<Ipv4Addr>,
    /// How many were given out; an address comes back only after all others.
    count: u32,
}

/// The network of one pod; it is removed on drop, after the pod's processes have ended.
#[derive(Debug)]
pub(super) struct PodNetwork {
    address: Ipv4Addr,
    addresses: Arc<Mutex<InUse>>,
}

impl Addresses {
    /// Makes a network with this address, or with a free one.
    pub(super) async fn attach(&self, wanted: Option<Ipv4Addr>) -> Result<PodNetwork> {
        let address = self.take(wanted)?;
        let network = PodNetwork { address, addresses: self.0.clone() };
        let name = network.name();
        let [_, _, third, fourth] = address.octets();
        // A pod that comes back with an address has its hardware address as well, so that no neighbour entry
        // is stale.
        let hardware = format!("02:00:0a:c8:{third:02x}:{fourth:02x}");
        let mut outside = String::new();
        writeln!(outside, "netns add {name}")?;
        writeln!(outside, "link add {name} type veth peer name eth0 address {hardware} netns {name}")?;
        writeln!(outside, "link set {name} master {BRIDGE} up")?;
        ip(&[], &outside).await?;
        let inside = format!(
            "link set lo up\naddress add {address}/16 dev eth0\nlink set eth0 up\nroute add default via {HOST_ADDRESS}\n"
        );
        ip(&["-netns", &name], &inside).await?;
        Ok(network)
    }

    fn take(&self, wanted: Option<Ipv4Addr>) -> Result<Ipv4Addr> {
        let mut in_use = self.0.lock().expect("no holder of this lock panics");
        let address = match wanted {
            Some(address) => address,
            None => loop {
                in_use.count = in_use.count % 60_000 + 1;
                // From 10.200.1.1 on; the rest of 10.200.0.0/24 is for tests that ask for an address.
                let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 200, 1, 0)) + in_use.count);
                if !in_use.taken.contains(&address) {
                    break address;
                }
            },
        };
        ensure!(in_use.taken.insert(address), "address {address} is in use");
        Ok(address)
    }
}

impl PodNetwork {
    /// The pod's address.
    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The file of its network namespace.
    pub(super) fn file(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name())
    }

    fn name(&self) -> String {
        let [_, _, third, fourth] = self.address.octets();
        format!("pod-{third}-{fourth}")
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        // Its devices go with it.
        let removed = std::process::Command::new("ip").args(["netns", "delete", &self.name()]).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("the network of the pod with {} was not removed", self.address);
        }
        self.addresses.lock().expect("no holder of this lock panics").taken.remove(&self.address);
    }
}

async fn ip(arguments: &[&str], batch: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(arguments).args(["-batch", "-"]).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().context("start ip")?;
    let mut stdin = child.stdin.take().context("its standard input")?;
    stdin.write_all(batch.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "ip: {}in:\n{batch}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
