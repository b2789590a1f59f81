//! The life of one pod, from its binding to its removal.

use super::RETRY;
use super::network::{ADDRESS_ANNOTATION, PodNetwork};
use super::probe::Readiness;
use super::status::{self, ContainerState, PodState};
use super::volumes::Volumes;
use super::{Kubelet, container, hooks};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::program::Process;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Preconditions};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

/// How often programs and probes are looked at.
const TICK: Duration = Duration::from_millis(25);
/// How often volumes are compared with their objects; the kubelet takes a minute.
const VOLUMES_PERIOD: Duration = Duration::from_secs(1);
/// The pause before the first restart of a program, doubled with each.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// A pod with its processes.
struct RunningPod {
    // The processes end before their network.
    containers: Vec<RunningContainer>,
    volumes: Volumes,
    network: PodNetwork,
    folder: PathBuf,
    volumes_due: Instant,
}

struct RunningContainer {
    spec: Container,
    process: Process,
    readiness: Readiness,
    exit_code: Option<i32>,
    restarts: u32,
    restart_due: Option<Instant>,
    /// Whether its end matters for the end of the pod.
    is_sidecar: bool,
}

/// Runs a pod until it is removed, or until its sender is dropped.
pub(super) async fn run(shared: Arc<Kubelet>, mut pods: watch::Receiver<Arc<Pod>>) {
    let Some(mut running) = start(&shared, &mut pods).await else { return };
    let mut reported: Option<PodState> = None;
    loop {
        let pod = pods.borrow_and_update().clone();
        if pod.metadata.deletion_timestamp.is_some() {
            break;
        }
        let state = running.update(&shared, &pod).await;
        if reported.as_ref() != Some(&state) && status::report(&shared, &pod, &state).await.is_ok() {
            let was_ready = reported.is_some_and(|reported| reported.is_ready);
            if was_ready != state.is_ready {
                let (namespace, name) = identity(&pod);
                shared.record(namespace, name, state.is_ready);
            }
            reported = Some(state);
        }
        tokio::select! {
            changed = pods.changed() => if changed.is_err() { return },
            () = sleep(TICK) => {}
        }
    }
    let pod = pods.borrow().clone();
    running.stop(&pod).await;
    // The address is free only when the API server has removed the pod.
    remove(&shared, &pod).await;
}

/// Starts a pod, again and again while something is missing; `None` when it was removed before.
async fn start(shared: &Arc<Kubelet>, pods: &mut watch::Receiver<Arc<Pod>>) -> Option<RunningPod> {
    let mut reported = String::new();
    loop {
        let pod = pods.borrow_and_update().clone();
        if pod.metadata.deletion_timestamp.is_some() {
            remove(shared, &pod).await;
            return None;
        }
        match RunningPod::start(shared, &pod).await {
            Ok(running) => return Some(running),
            Err(reason) => {
                let reason = format!("{reason:#}");
                if reason != reported && status::report_waiting(shared, &pod, &reason).await.is_ok() {
                    reported = reason;
                }
            }
        }
        tokio::select! {
            changed = pods.changed() => if changed.is_err() { return None },
            () = sleep(RETRY) => {}
        }
    }
}

/// Removes the pod's object, as the kubelet does when its containers have ended.
async fn remove(shared: &Kubelet, pod: &Pod) {
    let (namespace, name) = identity(pod);
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let now = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
    loop {
        match shared.pods(namespace).delete(name, &now).await {
            Ok(_) => return,
            // It is gone, or another one has its name.
            Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => return,
            Err(_) => sleep(RETRY).await,
        }
    }
}

fn identity(pod: &Pod) -> (&str, &str) {
    let metadata = &pod.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

impl RunningPod {
    async fn start(shared: &Kubelet, pod: &Pod) -> Result<Self> {
        let spec = pod.spec.as_ref().context("a pod without a specification")?;
        let annotations = pod.metadata.annotations.as_ref();
        let wanted = annotations.and_then(|annotations| annotations.get(ADDRESS_ANNOTATION));
        let wanted = wanted.map(|address| address.parse()).transpose().context(ADDRESS_ANNOTATION)?;
        let folder = shared.folder.join(pod.metadata.uid.as_deref().unwrap_or_default());
        let network = shared.addresses.attach(wanted).await?;
        let volumes = Volumes::create(shared, pod, folder.join("volumes"), network.address()).await?;
        let mut running = Self {
            containers: Vec::new(),
            volumes,
            network,
            folder,
            volumes_due: Instant::now() + VOLUMES_PERIOD,
        };
        for container in spec.init_containers.iter().flatten() {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            ensure!(is_sidecar, "init container {:?}: only sidecars are supported here", container.name);
            running.start_container(shared, pod, container, true).await?;
        }
        for container in &spec.containers {
            running.start_container(shared, pod, container, false).await?;
        }
        Ok(running)
    }

    async fn start_container(
        &mut self,
        shared: &Kubelet,
        pod: &Pod,
        spec: &Container,
        is_sidecar: bool,
    ) -> Result<()> {
        let readiness = Readiness::new(spec, self.network.address())?;
        let process =
            container::start(shared, pod, spec, &self.network, &self.volumes, &self.folder, 0).await?;
        self.containers.push(RunningContainer {
            spec: spec.clone(),
            process,
            readiness,
            exit_code: None,
            restarts: 0,
            restart_due: None,
            is_sidecar,
        });
        Ok(())
    }

    /// Restarts programs that have ended, runs the probes that are due, and returns the state.
    async fn update(&mut self, shared: &Kubelet, pod: &Pod) -> PodState {
        if Instant::now() >= self.volumes_due {
            self.volumes_due = Instant::now() + VOLUMES_PERIOD;
            // An object that is away leaves the files as they are.
            let _ = self.volumes.refresh(shared, pod).await;
        }
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
        for container in &mut self.containers {
            if container.exit_code.is_none()
                && let Ok(Some(status)) = container.process.exit_status()
            {
                // 128 + the signal, as shells have it.
                container.exit_code =
                    Some(status.code().unwrap_or_else(|| 128 + signal_of(status).unwrap_or(0)));
                let restarts = match policy {
                    "Never" => false,
                    "OnFailure" => container.exit_code != Some(0),
                    _ => true,
                };
                if restarts || container.is_sidecar {
                    let pause = RESTART_PAUSE * 2u32.pow(container.restarts.min(6));
                    container.restart_due = Some(Instant::now() + pause);
                }
            }
            if container.restart_due.is_some_and(|due| Instant::now() >= due) {
                let attempt = container.restarts + 1;
                let (network, folder) = (&self.network, &self.folder);
                let started =
                    container::start(shared, pod, &container.spec, network, &self.volumes, folder, attempt)
                        .await;
                // One that cannot start is due again with the next tick.
                if let (Ok(process), Ok(readiness)) =
                    (started, Readiness::new(&container.spec, network.address()))
                {
                    container.process = process;
                    container.readiness = readiness;
                    container.exit_code = None;
                    container.restart_due = None;
                    container.restarts = attempt;
                }
            }
            if container.exit_code.is_none() {
                container.readiness.update().await;
            }
        }
        self.state(pod)
    }

    fn state(&self, pod: &Pod) -> PodState {
        let containers = self.containers.iter().map(|container| ContainerState {
            exit_code: container.exit_code,
            is_ready: container.exit_code.is_none() && container.readiness.is_ready(),
            restarts: container.restarts,
        });
        let containers: Vec<ContainerState> = containers.collect();
        let main = || self.containers.iter().filter(|container| !container.is_sidecar);
        let is_finished = main().all(|main| main.exit_code.is_some() && main.restart_due.is_none());
        let finished = is_finished.then(|| main().all(|main| main.exit_code == Some(0)));
        let is_ready = containers.iter().all(|container| container.is_ready) && status::gates_hold(pod);
        PodState { address: self.network.address(), containers, is_ready, finished }
    }

    /// Ends each container with its hook and then SIGTERM, and after the pod's grace period with SIGKILL.
    async fn stop(&mut self, pod: &Pod) {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        let deadline = Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let address = self.network.address();
        let running = self.containers.iter_mut().filter(|container| container.exit_code.is_none());
        join_all(running.map(async |container| {
            // As for the kubelet, a hook that fails does not keep the container from its end.
            let hook = hooks::run_pre_stop(&container.spec, container.process.id(), address, deadline).await;
            if let Err(reason) = hook {
                eprintln!("the hook of container {} before its end: {reason:#}", container.spec.name);
            }
            container.process.signal(Signal::TERM);
        }))
        .await;
        for container in &mut self.containers {
            while Instant::now() < deadline && matches!(container.process.exit_status(), Ok(None)) {
                sleep(TICK).await;
            }
            container.process.kill();
        }
    }
}

impl Drop for RunningPod {
    fn drop(&mut self) {
        for container in &mut self.containers {
            container.process.kill();
        }
        // The folder lies in memory, and ends with the namespace at the latest.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn signal_of(status: std::process::ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    status.signal()
}
