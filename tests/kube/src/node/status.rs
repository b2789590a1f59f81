//! The status of a pod, as the node reports it.

use super::Kubelet;
use crate::namespace::HOST_ADDRESS;
use anyhow::Result;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// The status of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerState {
    /// The program's exit code; `None` while it runs.
    pub(super) exit_code: Option<i32>,
    pub(super) is_ready: bool,
    pub(super) restarts: u32,
}

/// The status of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodState {
    pub(super) address: Ipv4Addr,
    /// In the order of the pod's containers.
    pub(super) containers: Vec<ContainerState>,
    /// All containers are ready, and all readiness gates hold.
    pub(super) is_ready: bool,
    /// All containers have ended and stay so; the value is true when all succeeded.
    pub(super) finished: Option<bool>,
}

/// True when each of the pod's readiness gates is a condition that holds.
pub(super) fn gates_hold(pod: &Pod) -> bool {
    let conditions = || pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.into_iter().all(|gate| {
        conditions().any(|condition| condition.type_ == gate.condition_type && condition.status == "True")
    })
}

/// Reports the state of a pod that runs.
pub(super) async fn report(shared: &Kubelet, pod: &Pod, state: &PodState) -> Result<()> {
    let containers_ready = state.containers.iter().all(|container| container.is_ready);
    let statuses = |containers: &[Container], states: &[ContainerState]| -> Value {
        containers.iter().zip(states).map(|(container, state)| container_status(container, state)).collect()
    };
    let spec = pod.spec.as_ref();
    let sidecars = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let (sidecar_states, states) = state.containers.split_at(sidecars.len().min(state.containers.len()));
    let phase = match state.finished {
        None => "Running",
        Some(true) => "Succeeded",
        Some(false) => "Failed",
    };
    let status = json!({"status": {
        "phase": phase,
        "podIP": state.address,
        "podIPs": [{"ip": state.address}],
        "hostIP": HOST_ADDRESS,
        "hostIPs": [{"ip": HOST_ADDRESS}],
        "startTime": pod.metadata.creation_timestamp,
        "conditions": [
            condition(pod, "Initialized", true),
            condition(pod, "ContainersReady", containers_ready),
            condition(pod, "Ready", state.is_ready),
        ],
        "initContainerStatuses": statuses(sidecars, sidecar_states),
        "containerStatuses": statuses(containers, states),
    }});
    patch(shared, pod, &status).await
}

/// Reports why a pod does not start.
pub(super) async fn report_waiting(shared: &Kubelet, pod: &Pod, reason: &str) -> Result<()> {
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": false,
                "restartCount": 0,
                "state": {"waiting": {"reason": "CreateContainerConfigError", "message": reason}},
            })
        })
        .collect();
    let status = json!({"status": {"phase": "Pending", "containerStatuses": containers}});
    patch(shared, pod, &status).await
}

async fn patch(shared: &Kubelet, pod: &Pod, status: &Value) -> Result<()> {
    let mut status = status.clone();
    // A pod of the same name that came later is another one: its uid differs, and the patch is refused.
    status["metadata"] = json!({"uid": pod.metadata.uid});
    let pods = shared.pods(pod.metadata.namespace.as_deref().unwrap_or_default());
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}

/// A condition; its time stays while its value does.
fn condition(pod: &Pod, name: &str, holds: bool) -> Value {
    let value = if holds { "True" } else { "False" };
    let present = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut same = present.filter(|condition| condition.type_ == name && condition.status == value);
    let since = same.next().and_then(|condition| condition.last_transition_time.clone());
    let since = since.unwrap_or_else(now);
    json!({"type": name, "status": value, "lastTransitionTime": since})
}

fn now() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::now())
}

fn container_status(container: &Container, state: &ContainerState) -> Value {
    let current = match state.exit_code {
        None => json!({"running": {}}),
        Some(code) => json!({"terminated": {"exitCode": code}}),
    };
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "ready": state.is_ready,
        "started": state.exit_code.is_none(),
        "restartCount": state.restarts,
        "state": current,
    })
}
