//! The cluster's DNS server: the name of a Service leads to the addresses of its ready pods.

use super::RETRY;
use crate::namespace::HOST_ADDRESS;
use anyhow::{Context, Result};
use endpoint_picker_harness::dns::{DnsServer, RecordType, ResponseCode, Zone};
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, store};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::net::UdpSocket;

/// The label of an `EndpointSlice` with the name of the Service.
pub(super) const SERVICE: &str = "kubernetes.io/service-name";

type Addresses = BTreeMap<String, BTreeSet<Ipv4Addr>>;

/// Answers from the current addresses.
#[derive(Clone, Debug)]
struct Names(Arc<RwLock<Addresses>>);

/// Serves names until the future is dropped, at port 53. All addresses have it: a machine without
/// /etc/resolv.conf asks its own.
pub(super) async fn serve(client: Client, api_server: SocketAddr) -> Result<impl Future<Output = ()>> {
    let socket =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 53)).await.context("bind the port of the DNS server")?;
    let names = Names(Arc::new(RwLock::new(addresses(&[], api_server))));
    let server = DnsServer::start(socket, names.clone());
    Ok(async move {
        let _server = server;
        names.follow(client, api_server).await;
    })
}

impl Names {
    async fn follow(&self, client: Client, api_server: SocketAddr) {
        let (store, writer) = store::<EndpointSlice>();
        let events = watcher(Api::all(client), watcher::Config::default().labels(SERVICE).timeout(30));
        let events = reflector::reflector(writer, events).touched_objects();
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let current = addresses(&store.state(), api_server);
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = current;
            if event.is_err() {
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

impl Zone for Names {
    /// The default of `CoreDNS` for a cluster's names.
    const TTL: u32 = 5;

    fn addresses(&self, name: &str, _: RecordType) -> Result<Vec<IpAddr>, ResponseCode> {
        let addresses = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let addresses = addresses.get(name).ok_or(ResponseCode::NXDomain)?;
        Ok(addresses.iter().copied().map(IpAddr::from).collect())
    }
}

fn addresses(slices: &[Arc<EndpointSlice>], api_server: SocketAddr) -> Addresses {
    let mut addresses = Addresses::new();
    let mut add = |service: &str, namespace: &str, address: Ipv4Addr| {
        for suffix in ["", ".svc", ".svc.cluster.local"] {
            addresses.entry(format!("{service}.{namespace}{suffix}")).or_default().insert(address);
        }
    };
    // Envoys ask Envoy Gateway by this name for their configuration and for wasm modules; it runs on the host
    // of the pods.
    add("envoy-gateway", "envoy-gateway-system", HOST_ADDRESS);
    if let IpAddr::V4(address) = api_server.ip() {
        add("kubernetes", "default", address);
    }
    for slice in slices {
        let labels = slice.metadata.labels.as_ref();
        let (Some(service), Some(namespace)) =
            (labels.and_then(|labels| labels.get(SERVICE)), &slice.metadata.namespace)
        else {
            continue;
        };
        let ready = slice.endpoints.iter().filter(|endpoint| {
            endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
        });
        for address in ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse().ok()) {
            add(service, namespace, address);
        }
    }
    addresses
}
