//! The names of Services, in /etc/hosts: each leads to the addresses of its ready pods.

use super::scheduling::RETRY;
use crate::namespace::Namespace;
use anyhow::Result;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, store};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;

/// The label with the name of the Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// Keeps the file current until it is cancelled.
pub(super) async fn publish(client: Client, namespace: Namespace, api_server: SocketAddr) {
    let slices: Api<EndpointSlice> = Api::all(client);
    let (store, writer) = store::<EndpointSlice>();
    let events = watcher(slices, watcher::Config::default().labels(SERVICE).timeout(30));
    let events = reflector::reflector(writer, events).touched_objects();
    pin_mut!(events);
    let mut written = String::new();
    loop {
        let text = hosts(&store.state(), api_server);
        if text != written {
            match write(&namespace, &text) {
                Ok(()) => written = text,
                Err(reason) => eprintln!("write the names of Services: {reason:#}"),
            }
        }
        match events.next().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => tokio::time::sleep(RETRY).await,
            None => return,
        }
    }
}

fn hosts(slices: &[std::sync::Arc<EndpointSlice>], api_server: SocketAddr) -> String {
    let mut lines = BTreeSet::new();
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
        for address in ready.flat_map(|endpoint| &endpoint.addresses) {
            let name = format!("{service}.{namespace}");
            lines.insert(format!("{address} {name}.svc.cluster.local {name}.svc {name}"));
        }
    }
    let mut text = String::from("127.0.0.1 localhost\n");
    // Envoy asks Envoy Gateway by this name for wasm modules; both run on the host of the pods.
    text.push_str("127.0.0.1 envoy-gateway.envoy-gateway-system.svc.cluster.local envoy-gateway\n");
    let _ = writeln!(text, "{} kubernetes.default.svc.cluster.local kubernetes.default.svc", api_server.ip());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Replaces the content in place: the file is mounted elsewhere. It is never empty in between.
fn write(namespace: &Namespace, text: &str) -> Result<()> {
    let mut file = File::options().write(true).open(namespace.hosts_file())?;
    file.write_all(text.as_bytes())?;
    Ok(file.set_len(text.len() as u64)?)
}
