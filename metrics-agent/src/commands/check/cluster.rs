//! `metrics-agent check --cluster`: the manifests of a cluster that an agent would serve, and those that it would refuse.

use core::error::Error;
use core::fmt::{self, Write};
use core::time::Duration;
use std::sync::Arc;

use prometheus_client::registry::Registry;

use super::add_plan;
use crate::catalogue::cluster::{CatalogueSettings, ClusterCatalogue};
use crate::catalogue::{Options, Plan, Refusal};
use crate::commands::columns::{counted, printable};
use crate::runtime::Tasks;
use crate::sources::kubernetes::{self, Cluster, ClusterObjects, WatchMetrics};

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

/// Checks what an agent with these settings would watch. `pool` is its only pool, if it has one.
pub async fn check(
    watched: kubernetes::ClusterSettings,
    pool: Option<String>,
    options: Options,
) -> Result<Report, CheckError> {
    let (tasks, _) = Tasks::new();
    let metrics = WatchMetrics::register(&mut Registry::default());
    let cluster = Cluster::start(watched, &tasks, &metrics).await;
    let cluster = cluster.map_err(|error| CheckError(error.to_string()))?;
    let objects = objects(&cluster).await?;
    // The flags of the agent decide about TLS, and they are not known here.
    let settings = CatalogueSettings { namespace: cluster.namespace, pool, options, has_tls: true };
    let mut catalogue = ClusterCatalogue::new(settings);
    catalogue.set_objects(&objects);
    let (plan, refusals) = catalogue.plan();
    Ok(Report::new(&plan, &refusals))
}

/// All objects, once they are listed.
async fn objects(cluster: &Cluster) -> Result<Arc<ClusterObjects>, CheckError> {
    let mut objects = cluster.objects.objects();
    let listed = tokio::time::timeout(LIST_LIMIT, async {
        let listed = objects.wait_for(Result::is_ok).await;
        listed.ok().and_then(|objects| objects.as_ref().ok().cloned())
    });
    if let Ok(Some(objects)) = listed.await {
        return Ok(objects);
    }
    let reason = cluster.objects.objects().borrow().as_ref().err().cloned().unwrap_or_default();
    Err(CheckError(format!("the cluster's objects were not read within {LIST_LIMIT:?}: {reason}")))
}

/// The lines of a check, and the number of refused manifests.
#[derive(Debug)]
pub struct Report {
    lines: String,
    refused: usize,
}

impl Report {
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
        Self { lines, refused: refusals.len() }
    }

    /// Whether nothing is refused.
    pub fn is_ok(&self) -> bool {
        self.refused == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines)?;
        match self.refused {
            0 => writeln!(f, "no problems"),
            refused => writeln!(f, "{}", counted(refused, "problem")),
        }
    }
}
