//! The extension server, which waits for the cluster before it serves.

use std::sync::Arc;

use metrics_agent_catalogue::watch::PlanWatch;
use metrics_agent_gateway::object_reports::write_status;
use metrics_agent_gateway::references::PickerReferences;
use metrics_agent_gateway::server::status::SharedStatus;
use metrics_agent_gateway::server::{self, ServerSettings};
use metrics_agent_gateway::settings::HookSettings;
use metrics_agent_gateway::status::{OwnStatus, StatusInputs};
use metrics_agent_sources::kubernetes::{Cluster, ObjectsResult};
use metrics_agent_support::credentials::{CredentialError, Watched, Watching};
use metrics_agent_support::runtime::Tasks;
use s2n_tls::config::Config;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The extension server before it serves.
pub(super) struct ExtensionServer {
    tls: Option<Watched<Config>>,
    hooks: Arc<HookSettings>,
    status: SharedStatus,
    /// The objects of the cluster, which have to be read before the first call: Envoy Gateway does not repeat
    /// calls.
    objects: Option<watch::Receiver<ObjectsResult>>,
}

impl ExtensionServer {
    /// Reads the files for TLS; `None` without settings.
    pub(super) async fn new(
        settings: Option<ServerSettings>,
        cluster: Option<&Cluster>,
        watching: Watching<'_>,
    ) -> Result<Option<Self>, CredentialError> {
        let Some(ServerSettings { tls, hooks, .. }) = settings else { return Ok(None) };
        let tls = match tls {
            Some(files) => Some(files.watch(watching).await?),
            None => None,
        };
        let objects = cluster.map(|cluster| cluster.objects.objects());
        Ok(Some(Self { tls, hooks, status: SharedStatus::default(), objects }))
    }

    /// Envoy Gateway's calls.
    pub(super) fn status(&self) -> SharedStatus {
        self.status.clone()
    }

    /// Serves until `closing` is cancelled. Clients connect meanwhile, and wait.
    pub(super) async fn serve(self, listener: TcpListener, closing: CancellationToken) {
        let read = async {
            if let Some(mut objects) = self.objects {
                // The sender lives as long as the agent.
                let _ = objects.wait_for(Result::is_ok).await;
            }
        };
        tokio::select! {
            () = read => {}
            () = closing.cancelled() => return,
        }
        server::serve(listener, self.tls, self.hooks, self.status, closing).await;
    }
}

/// Begins to write the status of pools, if there is an extension server and a cluster. Returns the task, and
/// the references of pools to Services.
pub(super) fn start_status(
    settings: Option<&ServerSettings>,
    cluster: Option<&mut Cluster>,
    plans: &PlanWatch,
    tasks: &Tasks,
) -> Option<(AbortOnDropHandle<()>, PickerReferences)> {
    let (settings, cluster) = settings.zip(cluster)?;
    let (routes, services) = cluster.routes.take()?;
    let ownership = settings.hooks.ownership.clone();
    let references = PickerReferences::new(ownership.clone(), cluster.objects.objects(), services.services());
    let inputs = StatusInputs {
        objects: cluster.objects.objects(),
        routes: routes.objects(),
        services: services.services(),
        refusals: plans.refusals(),
    };
    let status = OwnStatus { ownership, inputs };
    let writing = write_status(cluster.client.clone(), "--extension-server", status);
    let held = async move {
        // The watches end with their handles.
        let _watches = (routes, services);
        writing.await;
    };
    Some((tasks.spawn("status of pools with routes", held), references))
}
