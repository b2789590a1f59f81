//! Reports to the agent: picks, loads and counters, for its page and its metrics. No decision depends on
//! them.

use core::fmt;
use core::time::Duration;

use endpoint_picker::flow_control::Waits;
use endpoint_picker::period::Period;
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::prefix::PredictionErrors;
use endpoint_picker_wire::report::{self, EndpointReport, FilterForm, Report};
use endpoint_picker_wire::{Message, REPORT_FORMAT};
use hashbrown::HashSet;

use super::call::{AgentRequest, CallError, path_of_pool};
use super::recent_errors::RecentErrors;
use crate::form::{Form, VERSION};
use crate::ledger::Ledger;
use crate::metrics::Totals;
use crate::worker_pool::store::PoolStore;

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// The time that a report may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why the agent did not take a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportProblem {
    /// The agent sent no response, or the proxy refused a call.
    Call(CallError),
    /// The agent responded with another status than 204.
    Status(u16),
}

impl fmt::Display for ReportProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Status(status) => write!(f, "the agent answered {status}"),
        }
    }
}

/// Reports to the agent for all workers.
#[derive(Debug)]
pub struct Reporter {
    path: String,
    proxy: String,
    form: Form,
    generation: u64,
    /// Pause before the next report.
    pause: Period,
    /// Whether a report is in flight.
    is_in_flight: bool,
    errors: RecentErrors,
    /// Endpoints that were avoided at any time since the last report: a pause between reports is longer than
    /// most avoidance.
    avoided: HashSet<u64>,
}

impl Reporter {
    /// `proxy` is the proxy's name, and `generation` is of this worker alone: its counts began when it did.
    pub fn new(pool: &str, proxy: String, form: Form, generation: u64) -> Self {
        Self {
            path: path_of_pool(pool, "report"),
            proxy,
            form,
            generation,
            pause: Period::default(),
            is_in_flight: false,
            errors: RecentErrors::default(),
            avoided: HashSet::new(),
        }
    }

    /// The report to send now, if there is one. None is due until [`Self::finish`] is called, also with the
    /// error of a proxy that refuses to send it. To be called often: a report names the endpoints that were
    /// avoided at any call since the last one. `totals` returns the counts of all workers.
    pub fn next_report(
        &mut self,
        store: &impl PoolStore,
        totals: impl FnOnce() -> Totals,
        now: Duration,
    ) -> Option<AgentRequest> {
        let view = store.view();
        // Before the checks: calls between two reports collect endpoints too.
        store.read(|ledger| self.avoided.extend(ledger.avoided_endpoints(now)));
        if self.is_in_flight || self.pause.contains(now) || view.versions().is_none() {
            return None;
        }
        let avoided = core::mem::take(&mut self.avoided);
        self.pause = Period::new(now, PERIOD);
        let Totals { counts, is_shadow } = totals();
        let mut report = Report {
            format: REPORT_FORMAT,
            proxy: self.proxy.clone(),
            generation: self.generation,
            endpoints: store.read(|ledger| endpoints(ledger, &avoided)),
            flow_control: store
                .with_current_queue(now, |queue| store.read(|ledger| queue.report(ledger, now)))
                .flatten(),
            first_token: store.read(|ledger| waits(ledger.first_token())),
            version: VERSION.to_owned(),
            form: FilterForm::from(self.form).into(),
            ..Report::default()
        };
        counts.write(&mut report);
        // Counts of a shadow may come from another configuration: while Envoy replaces one, an old VM reports
        // for both.
        let shadow = [report.shadow_agreed, report.shadow_disagreed].into_iter().flatten();
        if !is_shadow && view.topology().shadow.is_none() && shadow.max() == Some(0) {
            (report.shadow_agreed, report.shadow_disagreed) = (None, None);
        }
        self.is_in_flight = true;
        Some(AgentRequest { path: self.path.clone(), body: Some(report.encode_to_vec()), timeout: TIMEOUT })
    }

    /// Takes the status of the response to the report in flight. Returns a problem to log: one that did not
    /// occur lately.
    pub fn finish(&mut self, status: Result<u16, CallError>, now: Duration) -> Option<ReportProblem> {
        self.is_in_flight = false;
        let problem = match status {
            Ok(204) => None,
            Ok(status) => Some(ReportProblem::Status(status)),
            Err(error) => Some(ReportProblem::Call(error)),
        };
        problem.filter(|problem| self.errors.is_new(problem.to_string(), now))
    }
}

/// The endpoints that were picked, have load or were avoided.
fn endpoints(ledger: &Ledger, avoided: &HashSet<u64>) -> Vec<EndpointReport> {
    let counts = ledger.own_loads().zip(ledger.picks()).zip(ledger.responses());
    let endpoints = ledger.pool().as_slice().iter().zip(counts);
    let reports = endpoints.map(|(endpoint, ((Load { requests, tokens }, &picks), responses))| {
        let endpoint = endpoint.key();
        EndpointReport {
            endpoint,
            picks,
            requests,
            tokens,
            failing: avoided.contains(&endpoint),
            failures: responses.failures,
            first_byte: waits(&responses.first_byte),
            predicted_cached_tokens: responses.predicted_cached,
            cached_tokens: responses.cached,
            errors_by_events: errors(&responses.errors_by_events),
            errors_by_prompts: errors(&responses.errors_by_prompts),
        }
    });
    let is_used = |it: &EndpointReport| {
        it.picks > 0
            || it.requests > 0
            || it.tokens > 0
            || it.failing
            || it.failures > 0
            || it.first_byte.is_some()
            || it.errors_by_events.is_some()
            || it.errors_by_prompts.is_some()
    };
    reports.filter(is_used).collect()
}

/// `None` without any.
fn errors(errors: &PredictionErrors) -> Option<report::PredictionErrors> {
    let counts = errors.used_counts().to_vec();
    let (tokens, wrong) = (errors.tokens(), errors.wrong());
    (!counts.is_empty()).then_some(report::PredictionErrors { counts, tokens, wrong })
}

/// `None` without any.
fn waits(waits: &Waits) -> Option<report::Waits> {
    let counts = waits.used_counts().to_vec();
    (!counts.is_empty()).then(|| report::Waits { counts, seconds: waits.total().as_secs_f64() })
}
