//! The feedback of a response: its load, and the endpoints that failed or recovered.

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::grpc::Status;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::response::outcome::{RequestKind, ServerOutcome};
use endpoint_picker::response::usage::Usage;
use endpoint_picker::state::latency::CompleteResponse;
use endpoint_picker::state::prefix::{CachedTokens, UsagePrediction};

use super::head::ResponseHead;
use crate::ledger::{Change, ChangeKind, ChangeList};
use crate::pool_view::PoolView;
use crate::proxy::error_body::GRPC_STATUS;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::directive::{Assignment, FirstToken, ResponseProgress};
use crate::worker_pool::kept_connections::KeptConnections;
use crate::worker_pool::store::PoolStore;

/// The server of a response that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// The server that was tried last; `None` if none was.
    pub(super) by: Option<SocketAddr>,
    /// Its key; `None` if it is not in the pool.
    pub(super) endpoint: Option<u64>,
    /// The proof that the head gives about the server; `None` if the body or its trailers will show it.
    pub(super) outcome: Option<ServerOutcome>,
    /// Its connection was closed before any response.
    is_closed: bool,
}

impl Served {
    /// Reads the server of the response with this head to a request of this kind and assignment.
    pub(super) fn read(
        proxy: &impl Proxy,
        view: &PoolView,
        assignment: &Assignment,
        head: &ResponseHead,
        kind: RequestKind,
    ) -> Result<Self> {
        let first = assignment.destinations.first().and_then(|&key| view.pool().of_key(key));
        let by = proxy.upstream_address(first)?;
        let endpoint = by.and_then(|address| {
            first.filter(|first| first.address() == address).or_else(|| view.endpoint_at(address))
        });
        let endpoint = endpoint.map(Endpoint::key);
        let mut is_closed = false;
        let outcome = match head.outcome(kind) {
            _ if by.is_none() => Some(ServerOutcome::Neutral),
            outcome if head.is_server_error() => {
                let details = proxy.response_details()?;
                is_closed = details.starts_with(CLOSED);
                if details.starts_with(b"via_upstream") { outcome } else { Some(without_response(&details)) }
            }
            outcome => outcome,
        };
        Ok(Self { by, endpoint, outcome, is_closed })
    }
}

/// Envoy's response code details when a connection is closed before any response.
const CLOSED: &[u8] = b"upstream_reset_before_response_started{connection_termination";

/// The proof that the proxy's own response with these details gives about the server. It gives none when
/// Envoy's circuit breakers kept the request from the server, or when a filter responded.
fn without_response(details: &[u8]) -> ServerOutcome {
    let of_server: [&[u8]; 3] =
        [b"upstream_reset_before_response_started{", b"upstream_per_try_timeout", b"response_timeout"];
    let is_overflow = details.windows(b"{overflow".len()).any(|part| part == b"{overflow");
    if of_server.iter().any(|prefix| details.starts_with(prefix)) && !is_overflow {
        ServerOutcome::NO_RESPONSE
    } else {
        ServerOutcome::Neutral
    }
}

impl Assignment {
    /// Whether the first attempt went to a server that is not among the destinations: the proxy does not
    /// follow the pick. A later attempt may have left the list, because the destinations had failed. If a
    /// destination has left the pool, its address is unknown, so the result is false.
    pub(super) fn is_served_elsewhere(&self, pool: &Endpoints, proxy: &impl Proxy, served: Served) -> bool {
        let is_another = |&key: &u64| Some(key) != served.endpoint && pool.index_of(key).is_some();
        served.by.is_some() && self.destinations.iter().all(is_another) && proxy.attempts() == Some(1)
    }

    /// The response has begun, so the load is in flight at the endpoint that responds. Endpoints that failed
    /// the request are avoided from now on, and have not cached its prompt. If `is_elsewhere`, the request
    /// never went to its destinations, so they are not avoided.
    pub(super) fn begin_response(
        &mut self,
        store: &mut impl PoolStore,
        kept: &mut KeptConnections,
        proxy: &impl Proxy,
        served: Served,
        is_elsewhere: bool,
    ) -> Result<()> {
        // Where the only destination responds, and its head proves nothing, nothing has changed.
        let is_usual = *self.destinations == *served.endpoint.as_slice() && served.outcome.is_none();
        if is_usual { Ok(()) } else { self.move_to_server(store, kept, proxy, served, is_elsewhere) }
    }

    #[cold]
    #[inline(never)]
    fn move_to_server(
        &mut self,
        store: &mut impl PoolStore,
        kept: &mut KeptConnections,
        proxy: &impl Proxy,
        served: Served,
        is_elsewhere: bool,
    ) -> Result<()> {
        let mut changes = ChangeList::new();
        for load in &mut self.loads {
            if let Some(to) = served.endpoint
                && self.destinations.first() == Some(&load.endpoint)
                && to != load.endpoint
            {
                let mut moved = load.response;
                moved += load.prefill;
                let kind = ChangeKind::Moved { to, load: moved };
                changes.push(Change::Endpoint { endpoint: load.endpoint, kind });
                load.endpoint = to;
            }
        }
        let mut failures = served.endpoint.map_or(Failures::default(), |endpoint| {
            let is_failing = store.is_failing(endpoint);
            let tried = if is_elsewhere { &[][..] } else { &self.destinations };
            Failures::of(tried, endpoint, served.outcome, is_failing)
        });
        failures.failed.retain(|&failed| {
            let has_no_response = Some(failed) != served.endpoint || served.is_closed;
            !has_no_response || !kept.explain(failed, self.at)
        });
        // Only the response of an endpoint that generates shows that the prompt is in its cache.
        let may_serve =
            served.endpoint.filter(|_| served.outcome.is_none_or(|it| it == ServerOutcome::Served));
        if !self.sent_prompts.is_empty() {
            let destinations = core::mem::take(&mut self.destinations);
            changes.extend(
                self.retract(|endpoint| Some(endpoint) != may_serve && destinations.contains(&endpoint)),
            );
            self.destinations = destinations;
        }
        // The time is read only for the few responses that need it.
        let learned = if failures.is_empty() {
            Ok(())
        } else {
            proxy.now().map(|now| changes.extend(failures.changes(now)))
        };
        store.apply(changes);
        learned
    }

    /// The changes by which the prompts that these endpoints were sent are not cached there.
    pub(crate) fn retract(&mut self, is_of: impl Fn(u64) -> bool) -> ChangeList {
        let (at, mut changes) = (self.at, ChangeList::new());
        self.sent_prompts.retain(|sent| {
            let is_kept = !is_of(sent.endpoint());
            if !is_kept {
                changes.push(Change::State(sent.retraction(at)));
            }
            is_kept
        });
        changes
    }

    /// Whether output or an error has come.
    pub(super) fn has_begun(&self) -> bool {
        self.progress != ResponseProgress::Awaited
    }

    /// The first output of the response has come, or an error in its place. All prefill load has ended, also
    /// that of earlier stages: servers send the head of a stream before they have read the prompt.
    pub(super) fn begin_output(&mut self, store: &mut impl PoolStore, first: Option<FirstToken>) {
        if self.has_begun() {
            return;
        }
        self.progress = ResponseProgress::Begun(first);
        self.sent_prompts.clear();
        let ended = self.loads.iter_mut();
        let ended = ended.filter_map(|load| Change::ended(load.endpoint, core::mem::take(&mut load.prefill)));
        let mut changes: ChangeList = ended.collect();
        let at = first.map_or(self.at, |first| first.at);
        self.expectations.retain(|expected| {
            let took = first.and_then(|first| first.took.filter(|_| first.by == Some(expected.endpoint())));
            changes.push(Change::State(expected.answered(at, took)));
            if expected.is_prefill() {
                changes.push(Change::State(expected.ended(at, true, None)));
            }
            !expected.is_prefill()
        });
        store.apply(changes);
    }

    /// The server has failed to generate: what it was sent for the first time is not cached, unless output
    /// has come before. Nothing is learnt from the response.
    pub(super) fn fail_output(&mut self, store: &mut impl PoolStore) {
        let retracted = self.retract(|_| true);
        store.apply(retracted);
        self.begin_output(store, None);
        self.progress = ResponseProgress::Begun(None);
    }

    /// The response is complete. Returns it if it shows how long its server takes, and that counts.
    pub(super) fn complete(&mut self, proxy: &impl Proxy) -> Option<CompleteResponse> {
        let ResponseProgress::Begun(Some(first)) = self.progress else { return None };
        if self.expectations.is_empty() && self.limits.is_none() {
            return None;
        }
        let response = proxy.now().ok().map(|now| CompleteResponse {
            whole: now.saturating_sub(self.at),
            rest: first.took.map(|_| now.saturating_sub(first.at)),
            chunks: self.chunks,
            by: first.by,
        });
        self.progress = ResponseProgress::Complete(response);
        response
    }

    /// Whether plugins learn from the usage in the response.
    pub(super) fn learns_from_usage(&self) -> bool {
        self.usage_predictions.iter().any(UsagePrediction::is_learning)
    }

    /// Adds the changes that the usage in the response of this endpoint makes: samples for plugins that
    /// learn, and the counts of its cached tokens. Returns these tokens, as the acting rules predicted them;
    /// `None` if nothing was predicted, or the response has no cached tokens.
    fn learn_from_usage(&mut self, usage: &Usage, by: u64, changes: &mut ChangeList) -> Option<CachedTokens> {
        let mut acting = None;
        let predictions = core::mem::take(&mut self.usage_predictions);
        for (place, predicted) in
            predictions.iter().filter(|predicted| predicted.endpoint() == by).enumerate()
        {
            let cached = predicted.cached_tokens(usage);
            changes.extend(predicted.sample(usage, cached, self.at).map(Change::State));
            // The acting rules make the first prediction.
            if place == 0 {
                acting = cached;
            }
        }
        changes
            .extend(acting.map(|cached| Change::Endpoint { endpoint: by, kind: ChangeKind::Cached(cached) }));
        acting
    }

    /// The request is over, however it ended: none of its load is in flight any more. `served` is the change
    /// that its response makes to the counts of the endpoint, and `usage` the tokens of its response, with
    /// the endpoint that sent it. Returns the cached tokens that the usage shows, where they were predicted.
    pub(super) fn end(
        &mut self,
        store: &mut impl PoolStore,
        served: Option<Change>,
        usage: Option<(Usage, u64)>,
    ) -> Option<CachedTokens> {
        let (is_answered, response) = match self.progress {
            ResponseProgress::Awaited => (false, None),
            ResponseProgress::Begun(_) => (true, None),
            ResponseProgress::Complete(response) => (true, response),
        };
        let mut changes = ChangeList::new();
        for load in self.loads.drain(..) {
            // Prefill load is left only if no chunk of a response has come.
            let mut rest = load.response;
            rest += load.prefill;
            changes.extend(Change::ended(load.endpoint, rest));
        }
        changes.extend(served);
        let cached = usage.and_then(|(usage, by)| self.learn_from_usage(&usage, by, &mut changes));
        for expected in self.expectations.drain(..) {
            changes.push(Change::State(expected.ended(self.at, is_answered, response.as_ref())));
        }
        store.apply(changes);
        cached
    }

    /// The ends of the expectations of a request to which no endpoint of its pool has responded.
    pub(crate) fn end_expectations(&mut self) -> ChangeList {
        let at = self.at;
        self.expectations.drain(..).map(|expected| Change::State(expected.ended(at, false, None))).collect()
    }
}

/// The proof that the trailers of a gRPC response give; `None` without a status.
pub(super) fn outcome_of_trailers(proxy: &impl Proxy, kind: RequestKind) -> Result<Option<ServerOutcome>> {
    let mut status = None;
    proxy.read_response_trailers(|name, value| {
        if name == GRPC_STATUS.as_bytes() {
            status = Status::read(value);
        }
    })?;
    Ok(status.map(|status| ServerOutcome::of_call(status, kind)))
}

/// The response of this endpoint has proved this.
pub(super) fn judge(
    store: &mut impl PoolStore,
    now: impl FnOnce() -> Result<Duration>,
    endpoint: u64,
    outcome: ServerOutcome,
) -> Result<()> {
    let is_failing = store.is_failing(endpoint);
    let failures = Failures::of(&[], endpoint, Some(outcome), is_failing);
    if !failures.is_empty() {
        store.apply(failures.changes(now()?).collect());
    }
    Ok(())
}

/// Whether Envoy's response code details are of a response that its server has cut.
pub(super) fn is_cut(details: &[u8]) -> bool {
    let of_server: [&[u8]; 2] = [b"upstream_reset_after_response_started{", b"upstream_per_try_idle_timeout"];
    of_server.iter().any(|prefix| details.starts_with(prefix))
}

/// The endpoints that failed a request, and an endpoint that recovered.
#[derive(Debug, Default)]
struct Failures {
    failed: Vec<u64>,
    recovered: Option<u64>,
}

impl Failures {
    /// The destinations before the serving endpoint have failed, and the serving endpoint has failed or
    /// recovered by the outcome, if it is known.
    fn of(destinations: &[u64], served: u64, outcome: Option<ServerOutcome>, is_failing: bool) -> Self {
        // A server outside the list got the request after all destinations had failed.
        let tried_before = destinations.iter().take_while(|&&destination| destination != served);
        Self {
            failed: tried_before
                .copied()
                .chain((outcome == Some(ServerOutcome::Failed)).then_some(served))
                .collect(),
            recovered: (outcome == Some(ServerOutcome::Served) && is_failing).then_some(served),
        }
    }

    fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.recovered.is_none()
    }

    fn changes(self, at: Duration) -> impl Iterator<Item = Change> {
        let recovered = self.recovered.into_iter();
        let recovered =
            recovered.map(move |endpoint| Change::Endpoint { endpoint, kind: ChangeKind::Recovered { at } });
        let failed = self.failed.into_iter();
        recovered
            .chain(failed.map(move |endpoint| Change::Endpoint { endpoint, kind: ChangeKind::Failed { at } }))
    }
}
