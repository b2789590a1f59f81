//! Addresses of Services of type `LoadBalancer`, as a cloud gives them: connections to one go to the
//! Service's ready pods in turns.

use super::RETRY;
use super::names::SERVICE;
use crate::namespace::BRIDGE;
use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::{self, store};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The first of the addresses; none of the node's pods gets one above it.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 200, 254, 1);

/// Where connections to a port go.
type Targets = Vec<SocketAddr>;

/// The Services that have an address, by uid.
#[derive(Debug, Default)]
struct Balancers {
    addresses: BTreeMap<String, Ipv4Addr>,
    /// Balancers by address; a port stays when the Service has gone, without targets.
    ports: BTreeMap<SocketAddr, watch::Sender<Targets>>,
    connections: JoinSet<()>,
}

/// Gives addresses until the future is dropped.
pub(super) async fn run(client: Client) {
    let config = || watcher::Config::default().timeout(30);
    let (services, writer) = store::<Service>();
    let service_events = reflector::reflector(writer, watcher(Api::all(client.clone()), config()));
    let (slices, writer) = store::<EndpointSlice>();
    let slice_events = watcher(Api::all(client.clone()), config().labels(SERVICE));
    let slice_events = reflector::reflector(writer, slice_events);
    pin_mut!(service_events, slice_events);
    let mut balancers = Balancers::default();
    loop {
        let is_error = tokio::select! {
            event = service_events.next() => event.is_none_or(|event| event.is_err()),
            event = slice_events.next() => event.is_none_or(|event| event.is_err()),
        };
        if is_error {
            tokio::time::sleep(RETRY).await;
        }
        for service in services.state() {
            if let Err(reason) = balancers.update(&client, &service, &slices.state()).await {
                eprintln!("the address of Service {}: {reason:#}", service.name_any());
            }
        }
    }
}

impl Balancers {
    async fn update(
        &mut self,
        client: &Client,
        service: &Service,
        slices: &[Arc<EndpointSlice>],
    ) -> Result<()> {
        let Some(spec) = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
        else {
            return Ok(());
        };
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let uid = service.uid().context("a Service without a uid")?;
        let address = match self.addresses.get(&uid) {
            Some(address) => *address,
            None => self.add_address(uid).await?,
        };
        for port in spec.ports.iter().flatten() {
            if port.protocol.as_deref().is_some_and(|protocol| protocol != "TCP") {
                continue;
            }
            let listen = SocketAddr::from((address, u16::try_from(port.port)?));
            let targets = targets(slices, &namespace, &name, port.name.as_deref());
            if let Some(sender) = self.ports.get(&listen) {
                sender.send_replace(targets);
            } else {
                let listener = TcpListener::bind(listen).await?;
                let (sender, receiver) = watch::channel(targets);
                self.connections.spawn(forward(listener, receiver));
                self.ports.insert(listen, sender);
            }
        }
        let ingress =
            service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        if ingress.is_none_or(Vec::is_empty) {
            let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
            let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
            services.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        Ok(())
    }

    async fn add_address(&mut self, uid: String) -> Result<Ipv4Addr> {
        let count = u32::try_from(self.addresses.len())?;
        ensure!(count < 250, "all addresses are in use");
        let address = Ipv4Addr::from(u32::from(FIRST) + count);
        let mut command = Command::new("ip");
        command.args(["address", "add", &format!("{address}/32"), "dev", BRIDGE]).kill_on_drop(true);
        let status = command.status().await.context("start ip")?;
        ensure!(status.success(), "ip does not add {address}");
        self.addresses.insert(uid, address);
        Ok(address)
    }
}

/// The ready endpoints of a Service's port.
fn targets(slices: &[Arc<EndpointSlice>], namespace: &str, service: &str, port: Option<&str>) -> Targets {
    let of_service = slices.iter().filter(|slice| {
        slice.metadata.namespace.as_deref() == Some(namespace)
            && slice.labels().get(SERVICE).is_some_and(|name| name == service)
    });
    let mut targets = Targets::new();
    for slice in of_service {
        let same = |name: Option<&str>| name.unwrap_or_default() == port.unwrap_or_default();
        let mut ports = slice.ports.iter().flatten().filter(|port| same(port.name.as_deref()));
        let Some(number) = ports.find_map(|port| u16::try_from(port.port?).ok()) else { continue };
        let ready = slice.endpoints.iter().filter(|endpoint| {
            endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
        });
        let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
        targets.extend(
            addresses.filter_map(|text| text.parse::<IpAddr>().ok()).map(|ip| SocketAddr::from((ip, number))),
        );
    }
    targets
}

/// Connects each client with the next target; without one the connection ends.
async fn forward(listener: TcpListener, targets: watch::Receiver<Targets>) {
    let mut connections = JoinSet::new();
    let mut count = 0_usize;
    while let Ok((mut client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        count += 1;
        let target = {
            let targets = targets.borrow();
            targets.get(count % targets.len().max(1)).copied()
        };
        let Some(target) = target else { continue };
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                // One side that ends a connection is no fault of the other.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
