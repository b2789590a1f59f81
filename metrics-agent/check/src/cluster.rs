//! `metrics-agent check --cluster`: the manifests of a cluster that an agent would serve, and those that it
//! would refuse.

use core::error::Error;
use core::fmt::{self, Write};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use metrics_agent_catalogue::cluster::{CatalogueSettings, ClusterCatalogue};
use metrics_agent_catalogue::{Options, Plan, Refusal};
use metrics_agent_doctor::doctor;
use metrics_agent_sources::kubernetes::{
    self, Cluster, ClusterObjects, ObjectsResult, WatchMetrics, WatchedServices,
};
use metrics_agent_status::columns::{counted, printable};
use metrics_agent_support::runtime::Tasks;
use prometheus_client::registry::Registry;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;

use super::add_plan;
use super::envoy_gateway::GatewayFacts;

/// Maximum time for the first lists of all objects.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// Why a cluster could not be checked.
#[derive(Debug)]
pub struct CheckError(String);

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for CheckError {}

/// Checks what an agent with these settings would watch. `pool` is its only pool, if it has one, and
/// `envoy_gateway` the namespace of an Envoy Gateway whose extension server agents are.
pub async fn check(
    watched: kubernetes::ClusterSettings,
    pool: Option<String>,
    envoy_gateway: Option<String>,
    options: Options,
) -> Result<CheckReport, CheckError> {
    // The Services that pools name are of no interest here.
    let routes = envoy_gateway.as_ref().map(|_| WatchedServices::Named(BTreeSet::new()));
    let watched = kubernetes::ClusterSettings { routes, ..watched };
    let (tasks, _) = Tasks::new();
    let metrics = WatchMetrics::register(&mut Registry::default());
    let cluster = Cluster::start(watched, &tasks, &metrics).await;
    let cluster = cluster.map_err(|error| CheckError(error.to_string()))?;
    let objects = read(cluster.objects.objects()).await?;
    let gateway = match (envoy_gateway, &cluster.routes) {
        (Some(namespace), Some((routes, _))) => {
            let routes = read(routes.objects()).await?;
            let facts =
                GatewayFacts::read(&cluster.client, namespace, objects.0.clone(), routes.0.clone()).await;
            Some(facts.diagnose(UnixTime::now()))
        }
        _ => None,
    };
    // The flags of the agent decide about TLS, and they are not known here.
    let settings = CatalogueSettings { namespace: cluster.namespace, pool, options, has_tls: true };
    let mut catalogue = ClusterCatalogue::new(settings);
    catalogue.set_objects(&objects);
    let (plan, refusals) = catalogue.plan();
    Ok(CheckReport { gateway, ..CheckReport::new(&plan, &refusals) })
}

/// All objects, once they are listed.
async fn read(mut objects: watch::Receiver<ObjectsResult>) -> Result<Arc<ClusterObjects>, CheckError> {
    let listed = tokio::time::timeout(LIST_LIMIT, async {
        let listed = objects.wait_for(Result::is_ok).await;
        listed.ok().and_then(|objects| objects.as_ref().ok().cloned())
    });
    if let Ok(Some(objects)) = listed.await {
        return Ok(objects);
    }
    let reason = objects.borrow().as_ref().err().cloned().unwrap_or_default();
    Err(CheckError(format!("the cluster's objects were not read within {LIST_LIMIT:?}: {reason}")))
}

/// The lines of a check, the number of refused manifests, and the mistakes of a gateway.
#[derive(Debug)]
pub struct CheckReport {
    lines: String,
    refused: usize,
    /// The check of Envoy Gateway, if there is one.
    gateway: Option<doctor::Report>,
}

impl CheckReport {
    fn new(plan: &Plan, refusals: &[Refusal]) -> Self {
        let (objects, pools) = (counted(plan.documents, "object"), counted(plan.pools.len(), "pool"));
        let mut lines = format!("valid: {objects}; in force: {pools}\n");
        add_plan(&mut lines, plan);
        for Refusal { source, reasons, .. } in refusals {
            // Reasons have values of the cluster's objects.
            let _ = writeln!(lines, "refused: {}", printable(&source.to_string()));
            for reason in reasons {
                let _ = writeln!(lines, "  {}", printable(reason));
            }
        }
        Self { lines, refused: refusals.len(), gateway: None }
    }

    /// Whether nothing is refused, and the gateway has no mistake.
    pub fn is_ok(&self) -> bool {
        self.refused == 0 && self.gateway.as_ref().is_none_or(doctor::Report::is_ok)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines)?;
        match self.refused {
            0 => writeln!(f, "no problems")?,
            refused => writeln!(f, "{}", counted(refused, "problem"))?,
        }
        match &self.gateway {
            Some(gateway) => write!(f, "{gateway}"),
            None => Ok(()),
        }
    }
}
