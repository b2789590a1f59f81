//! The feedback of a response: its load, and the endpoints that failed.

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::grpc::Status;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::response::usage::Usage;
use endpoint_picker::state::latency::CompleteResponse;
use endpoint_picker::state::prefix::{CachedTokens, UsagePrediction};

use crate::ledger::{Change, ChangeKind};
use crate::pool_view::PoolView;
use crate::proxy::error_body::GRPC_STATUS;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::directive::{Assignment, FirstChunk, ResponseProgress};
use crate::worker_pool::store::PoolStore;

/// The server of a response that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// The server that was tried last; `None` if none was.
    pub(super) by: Option<SocketAddr>,
    /// Its key; `None` if it is not in the pool.
    pub(super) endpoint: Option<u64>,
    /// Whether the server sent no response, or an error of its own; `None` if the trailers of its gRPC response will show it.
    pub(super) is_failure: Option<bool>,
}

impl Served {
    /// Reads the server of the response to a request of this assignment, whose status is that of an error or not.
    pub(super) fn read(
        proxy: &impl Proxy,
        view: &PoolView,
        assignment: &Assignment,
        is_server_error: Option<bool>,
    ) -> Result<Self> {
        let first = assignment.destinations.first().and_then(|&key| view.pool().of_key(key));
        let by = proxy.upstream_address(first)?;
        let endpoint = by.and_then(|address| {
            first.filter(|first| first.address() == address).or_else(|| view.endpoint_at(address))
        });
        let endpoint = endpoint.map(Endpoint::key);
        let is_failure = match is_server_error {
            Some(true) => Some(by.is_some() && is_servers_fault(&proxy.response_details()?)),
            Some(false) | None => is_server_error,
        };
        Ok(Self { by, endpoint, is_failure })
    }
}

/// Whether an error is the server's. It is not when Envoy's circuit breakers kept the request from the server, or when a filter
/// responded.
fn is_servers_fault(details: &[u8]) -> bool {
    let of_server: [&[u8]; 4] = [
        b"via_upstream",
        b"upstream_reset_before_response_started{",
        b"upstream_per_try_timeout",
        b"response_timeout",
    ];
    let is_overflow = details.windows(b"{overflow".len()).any(|part| part == b"{overflow");
    of_server.iter().any(|prefix| details.starts_with(prefix)) && !is_overflow
}

impl Assignment {
    /// Whether the first attempt went to a server that is not among the destinations: the proxy does not
    /// follow the pick. A later attempt may have left the list, because the destinations had failed. If a
    /// destination has left the pool, its address is unknown, so the result is false.
    pub(super) fn is_served_elsewhere(&self, pool: &Endpoints, proxy: &impl Proxy, served: Served) -> bool {
        let is_another = |&key: &u64| Some(key) != served.endpoint && pool.index_of(key).is_some();
        served.by.is_some() && self.destinations.iter().all(is_another) && proxy.attempts() == Some(1)
    }

    /// The response has begun, so the load is in flight at the endpoint that responds. Endpoints that failed the request are avoided from
    /// now on. If `is_elsewhere`, the request never went to its destinations, so they are not avoided.
    pub(super) fn begin_response(
        &mut self,
        store: &mut impl PoolStore,
        proxy: &impl Proxy,
        served: Served,
        is_elsewhere: bool,
    ) -> Result<()> {
        let mut changes = Vec::new();
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
        let failures = served.endpoint.map_or(Failures::default(), |endpoint| {
            let is_failing = store.read(|ledger| ledger.is_failing(endpoint));
            let tried = if is_elsewhere { &[][..] } else { &self.destinations };
            Failures::of(tried, endpoint, served.is_failure, is_failing)
        });
        // The time is read only for the few responses that need it.
        let learned = if failures.is_empty() {
            Ok(())
        } else {
            proxy.now().map(|now| changes.extend(failures.changes(now)))
        };
        store.apply(changes);
        learned
    }

    /// A chunk of the response's body has come. With the first one, all prefill load has ended, also that of earlier stages: servers
    /// send the head of a stream before they have read the prompt.
    pub(super) fn chunk(&mut self, store: &mut impl PoolStore, first: Option<FirstChunk>) {
        if self.progress != ResponseProgress::Awaited {
            return;
        }
        self.progress = ResponseProgress::Begun(first);
        let ended = self.loads.iter_mut();
        let ended = ended.filter_map(|load| Change::ended(load.endpoint, core::mem::take(&mut load.prefill)));
        let answered = self.expectations.iter().zip(core::iter::repeat(first)).map(|(expected, first)| {
            let took = first.and_then(|first| first.took.filter(|_| first.by == Some(expected.endpoint())));
            Change::State(expected.answered(first.map_or(self.at, |first| first.at), took))
        });
        store.apply(ended.chain(answered).collect());
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

    /// Adds the changes that the usage in the response of this endpoint makes: samples for plugins that learn, and the counts of its cached
    /// tokens. Returns these tokens, as the acting rules predicted them; `None` if nothing was predicted, or the response has no cached tokens.
    fn learn_from_usage(
        &mut self,
        usage: &Usage,
        by: u64,
        changes: &mut Vec<Change>,
    ) -> Option<CachedTokens> {
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
    /// that its response makes to the counts of the endpoint, and `usage` the tokens of its response, with the endpoint that sent it.
    /// Returns the cached tokens that the usage shows, where they were predicted.
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
        let mut changes = Vec::new();
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
    pub(crate) fn end_expectations(&mut self) -> Vec<Change> {
        let at = self.at;
        self.expectations.drain(..).map(|expected| Change::State(expected.ended(at, false, None))).collect()
    }
}

/// The trailers of a gRPC response of this endpoint have come, and show whether it failed the request.
pub(super) fn judge_by_trailers(store: &mut impl PoolStore, proxy: &impl Proxy, endpoint: u64) -> Result<()> {
    let mut status = None;
    proxy.read_response_trailers(|name, value| {
        if name == GRPC_STATUS.as_bytes() {
            status = Status::read(value);
        }
    })?;
    let is_failing = store.read(|ledger| ledger.is_failing(endpoint));
    let is_failure = status.map(Status::is_server_failure);
    let failures = Failures::of(&[], endpoint, is_failure, is_failing);
    if !failures.is_empty() {
        let now = proxy.now()?;
        store.apply(failures.changes(now).collect());
    }
    Ok(())
}

/// Whether Envoy's response code details are of a response that its server has cut.
pub(super) fn is_cut(details: &[u8]) -> bool {
    let of_server: [&[u8]; 2] = [b"upstream_reset_after_response_started{", b"upstream_per_try_idle_timeout"];
    of_server.iter().any(|prefix| details.starts_with(prefix))
}

/// This endpoint has cut a response.
pub(super) fn judge_cut(store: &mut impl PoolStore, proxy: &impl Proxy, endpoint: u64) -> Result<()> {
    let failures = Failures { failed: vec![endpoint], recovered: None };
    store.apply(failures.changes(proxy.now()?).collect());
    Ok(())
}

/// The endpoints that failed a request, and an endpoint that recovered.
#[derive(Debug, Default)]
struct Failures {
    failed: Vec<u64>,
    recovered: Option<u64>,
}

impl Failures {
    /// The destinations before the serving endpoint have failed, and the serving endpoint too if its response
    /// is a failure, as far as that is known.
    fn of(destinations: &[u64], served: u64, is_failure: Option<bool>, is_failing: bool) -> Self {
        // A server outside the list got the request after all destinations had failed.
        let tried_before = destinations.iter().take_while(|&&destination| destination != served);
        Self {
            failed: tried_before.copied().chain((is_failure == Some(true)).then_some(served)).collect(),
            recovered: (is_failure == Some(false) && is_failing).then_some(served),
        }
    }

    fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.recovered.is_none()
    }

    fn changes(self, at: Duration) -> impl Iterator<Item = Change> {
        let recovered = self.recovered.into_iter();
        let recovered =
            recovered.map(move |endpoint| Change::Endpoint { endpoint, kind: ChangeKind::Answered { at } });
        let failed = self.failed.into_iter();
        recovered
            .chain(failed.map(move |endpoint| Change::Endpoint { endpoint, kind: ChangeKind::Failed { at } }))
    }
}
