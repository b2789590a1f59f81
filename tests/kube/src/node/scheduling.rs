//! Watches pods: binds those without a node, and starts a task for each of the node's own.

use super::{Kubelet, NODE, RETRY, pod};
use anyhow::Result;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The running pods, by uid.
type Running = HashMap<String, watch::Sender<Arc<Pod>>>;

/// Runs until it is cancelled; all pods end with it.
pub(super) async fn run_pods(shared: Arc<Kubelet>) {
    let all: Api<Pod> = Api::all(shared.client.clone());
    let events = watcher(all, watcher::Config::default().timeout(30));
    pin_mut!(events);
    let mut tasks = JoinSet::new();
    let mut running = Running::new();
    let mut listed: HashSet<String> = HashSet::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Some(_) = tasks.join_next() => continue,
        };
        match event {
            Some(Ok(Event::Init)) => listed.clear(),
            Some(Ok(Event::InitApply(pod))) => {
                listed.extend(pod.metadata.uid.clone());
                update(&shared, pod, &mut running, &mut tasks);
            }
            // A pod that was removed while the API server was away has no event of its own.
            Some(Ok(Event::InitDone)) => running.retain(|uid, _| listed.contains(uid)),
            Some(Ok(Event::Apply(pod))) => update(&shared, pod, &mut running, &mut tasks),
            Some(Ok(Event::Delete(pod))) => {
                if let Some(uid) = &pod.metadata.uid {
                    running.remove(uid);
                }
            }
            Some(Err(_)) => tokio::time::sleep(RETRY).await,
            None => return,
        }
    }
}

fn update(shared: &Arc<Kubelet>, pod: Pod, running: &mut Running, tasks: &mut JoinSet<()>) {
    let Some(uid) = pod.metadata.uid.clone() else { return };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    match node {
        None if pod.metadata.deletion_timestamp.is_none() => {
            let shared = shared.clone();
            tasks.spawn(async move {
                // A pod that stays unbound comes again with the next change or list.
                if let Err(reason) = bind(&shared, &pod).await {
                    eprintln!("bind a pod: {reason:#}");
                }
            });
        }
        Some(NODE) => {
            let pod = Arc::new(pod);
            if let Some(sender) = running.get(&uid) {
                sender.send_replace(pod);
            } else {
                let (sender, receiver) = watch::channel(pod);
                running.insert(uid, sender);
                tasks.spawn(pod::run(shared.clone(), receiver));
            }
        }
        // It ends before it was bound, or it is of a node that exists only in its test.
        None | Some(_) => {}
    }
}

async fn bind(shared: &Kubelet, pod: &Pod) -> Result<()> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    });
    let pods = shared.pods(namespace);
    let bound: kube::Result<Value> =
        pods.create_subresource("binding", name, &PostParams::default(), &binding).await;
    match bound {
        // Another event of the same pod was faster, or the pod is gone.
        Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 404 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
