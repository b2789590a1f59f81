//! Tells the agent what the filter did: one VM for all, the one that fetches.

use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::REPORT_FORMAT;
use endpoint_picker_wire::report::{EndpointReport, Report};

use crate::host;
use crate::pool_state::PoolState;
use crate::stats::Stats;

/// Time between two reports.
const EVERY: Duration = Duration::from_secs(1);

/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A VM's part in the reporting.
#[derive(Debug)]
pub(crate) struct Reporter {
    path: String,
    cluster: String,
    proxy: String,
    generation: u64,
    /// Until the next report.
    pause: Period,
    call: Option<u32>,
    failing: bool,
}

impl Reporter {
    /// `generation` is of this VM alone: its counts began when it did.
    pub(crate) fn new(pool: &str, cluster: &str, generation: u64) -> Self {
        let proxy = host::node_id().unwrap_or_else(|error| {
            log::warn!("{error}; reports to the agent do not name this proxy");
            None
        });
        Self {
            path: format!("/v1/pools/{pool}/report"),
            cluster: cluster.to_owned(),
            proxy: proxy.unwrap_or_default(),
            generation,
            pause: Period::default(),
            call: None,
            failing: false,
        }
    }

    /// Sends a report, if it is time to.
    pub(crate) fn run(&mut self, pool: &PoolState, stats: &Stats, now: Duration) -> host::Result<()> {
        if self.call.is_some() || self.pause.contains(now) || pool.versions().is_none() {
            return Ok(());
        }
        self.pause = Period::new(now, EVERY);
        let is_tried = pool.tries_a_shadow();
        let report = Report {
            format: REPORT_FORMAT,
            proxy: self.proxy.clone(),
            generation: self.generation,
            endpoints: pool.tallies(now).filter(says_something).collect(),
            routed: stats.routed.value(),
            abstained: stats.abstained_no_snapshot.value() + stats.abstained_body_too_large.value(),
            rejected: stats.rejected(),
            shadow_agreed: is_tried.then(|| stats.shadow_agreed.value()),
            shadow_disagreed: is_tried.then(|| stats.shadow_disagreed.value()),
        };
        self.call = Some(host::post(&self.cluster, &self.path, &report.encode_to_vec(), TIMEOUT)?);
        Ok(())
    }

    /// Takes the answer to a report; false if it is the answer to something else.
    pub(crate) fn finish(&mut self, token: u32) -> bool {
        if self.call != Some(token) {
            return false;
        }
        self.call = None;
        let problem = match host::call_status() {
            Ok(Some(204)) => None,
            Ok(Some(status)) => Some(format!("the agent answered {status}")),
            Ok(None) => Some("the agent did not answer".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = core::mem::replace(&mut self.failing, problem.is_some());
        if let Some(problem) = problem.filter(|_| !was_failing) {
            log::warn!("a report was not taken: {problem}; the agent's page lacks picks, trying on");
        }
        true
    }
}

fn says_something(tally: &EndpointReport) -> bool {
    tally.picks > 0 || tally.requests > 0 || tally.tokens > 0 || tally.failing
}
