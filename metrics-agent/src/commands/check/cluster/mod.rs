//! `metrics-agent check --cluster`: what the agent would serve, what it would refuse, what differs from the EPP, and whether the
//! gateway's policies are in force.

mod deployment;
mod epp;
mod policies;
mod read;
mod report;

use core::error::Error;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use read::Reader;
pub use report::Report;

use crate::catalogue::Options;
use crate::catalogue::cluster::{ClusterCatalogue, Settings};
use crate::runtime::Tasks;
use crate::sources::kubernetes::{self, Cluster, ClusterObjects, Namespaces, WatchMetrics};

/// Longest time for the first lists of all objects.
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
    watched: kubernetes::Settings,
    pool: Option<String>,
    options: Options,
) -> Result<Report, CheckError> {
    let namespaces = watched.namespaces.clone();
    let (tasks, _) = Tasks::new();
    let metrics = WatchMetrics::register(&mut Registry::default());
    let cluster = Cluster::start(watched, &tasks, &metrics).await;
    let cluster = cluster.map_err(|error| CheckError(error.to_string()))?;
    let objects = objects(&cluster).await?;
    let own = || Namespaces::Named(vec![cluster.client.namespace().to_owned()]);
    let reader = Reader::new(cluster.client.clone(), namespaces.unwrap_or_else(own));
    // The flags of the agent decide about TLS, and they are not known here.
    let settings = Settings { namespace: cluster.namespace, pool, options, has_tls: true };
    let mut report = report_of_objects(&objects, &settings);
    epp::add(&mut report, &objects, &reader, &settings).await;
    policies::add(&mut report, &reader).await;
    Ok(report)
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

/// What the agent would serve and refuse.
fn report_of_objects(objects: &ClusterObjects, settings: &Settings) -> Report {
    let mut catalogue = ClusterCatalogue::new(settings.clone());
    catalogue.set_objects(objects);
    let (plan, refusals) = catalogue.plan();
    let mut report = Report::default();
    report.add_plan(&plan);
    for refusal in &refusals {
        report.problem(&format!("refused: {}", refusal.source), refusal.reasons.iter());
    }
    report
}
