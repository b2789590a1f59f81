//! Other pools of a list, which take requests while a pool has no room for them.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::fallback::{self, FallbackReason};
use endpoint_picker::headers::Headers;
use endpoint_picker::pool::Endpoint;
use endpoint_picker::request::body::Api;
use endpoint_picker::response::outcome::ServerOutcome;

use crate::ledger::{Change, ChangeKind, ChangeList};
use crate::metrics::MetricSink;
use crate::worker_pool::WorkerPool;
use crate::worker_pool::directive::Assignment;
use crate::worker_pool::store::PoolStore;

/// Another pool that may take requests.
#[derive(Debug)]
pub struct OtherPool<S> {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its state, which the workers of that pool have too.
    pub store: S,
}

/// A response of an endpoint that is not in the pool to which the request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherResponse {
    pub(crate) address: SocketAddr,
    /// The proof that its head gives; `None` if the rest will show it.
    pub(crate) outcome: Option<ServerOutcome>,
    /// It comes from the first attempt: the proxy does not follow the pick.
    pub(crate) is_elsewhere: bool,
    /// When its head came.
    pub(crate) at: Duration,
}

impl<S: PoolStore, M: MetricSink> WorkerPool<S, M> {
    /// The place, among the other pools, of the pool that [takes](fallback::other_pool) a request of this
    /// priority in place of this pool.
    pub(crate) fn other_pool(
        &self,
        headers: Headers<'_>,
        priority: i32,
        now: Duration,
    ) -> Option<(usize, FallbackReason)> {
        let own = self.store.room(priority, now)?;
        let others = self.listed().filter_map(|(place, OtherPool { store, .. })| {
            // Where the model in the body decides the priority, it is not read for another pool.
            let view = store.view();
            let priority = view.policy().early_priority(headers).unwrap_or(0);
            let room = store.room(priority, now).filter(|_| view.policy().refusal.is_none())?;
            Some((place, room))
        });
        fallback::other_pool(own, self.sheds(priority), others)
    }

    /// The other pools of the list, with their places among all other pools.
    fn listed(&self) -> impl Iterator<Item = (usize, &OtherPool<S>)> {
        self.fallback.iter().filter_map(|&place| Some((place, self.others.get(place)?)))
    }

    /// Whether this pool rejects requests of this priority while it is saturated.
    fn sheds(&self, priority: i32) -> bool {
        priority < 0 && self.view().topology().pipeline.flow_control().is_none()
    }

    /// The names of the other pools that can serve a request which was sent to this pool with this model:
    /// those that neither replace the model nor refuse it. Its body stays the same for all attempts.
    pub(crate) fn retry_pools(&self, api: Api, headers: Headers<'_>, model: &str) -> Vec<Arc<str>> {
        let mut rng = self.draws.acting.clone();
        let can_serve = |other: &&OtherPool<S>| {
            let view = other.store.view();
            let asked = (!model.is_empty()).then_some(model);
            view.versions().is_some()
                && view.policy().refusal.is_none()
                && !view.policy().may_rename(headers, model)
                && view.policy().resolve_at(api, headers, asked, &mut rng).is_ok()
        };
        self.listed().map(|(_, other)| other).filter(can_serve).map(|other| Arc::clone(&other.name)).collect()
    }

    /// Moves the load of a request to the other pool that responds to it, if one has the endpoint. Returns
    /// the endpoint's key. The destinations of this pool have failed before, and are avoided from now on.
    pub(crate) fn hand_over(&mut self, assignment: &mut Assignment, response: OtherResponse) -> Option<u64> {
        let OtherResponse { address, outcome, is_elsewhere, at } = response;
        let mut others = self.others.iter_mut().enumerate();
        let (place, endpoint, other) = others.find_map(|(place, OtherPool { store, .. })| {
            let endpoint = store.view().endpoint_at(address).map(Endpoint::key)?;
            Some((place, endpoint, store))
        })?;
        let (mut own_changes, mut changes) = (assignment.end_expectations(), ChangeList::new());
        for load in &mut assignment.loads {
            let mut all = load.prefill;
            all += load.response;
            own_changes.extend(Change::ended(load.endpoint, all));
            changes.extend(Change::started(endpoint, all));
            load.endpoint = endpoint;
        }
        let event = |endpoint, kind| Change::Endpoint { endpoint, kind };
        let failed = assignment.destinations.iter().filter(|_| !is_elsewhere);
        own_changes.extend(failed.map(|&failed| event(failed, ChangeKind::Failed { at })));
        own_changes.extend(assignment.retract(|_| true));
        match outcome {
            Some(ServerOutcome::Failed) => changes.push(event(endpoint, ChangeKind::Failed { at })),
            Some(ServerOutcome::Served) if other.read(|ledger| ledger.is_failing(endpoint)) => {
                changes.push(event(endpoint, ChangeKind::Recovered { at }));
            }
            Some(ServerOutcome::Served | ServerOutcome::Neutral) | None => {}
        }
        other.apply(changes);
        self.store.apply(own_changes);
        assignment.handed_over = Some(place);
        self.metrics.fallbacks.increment(FallbackReason::Failed);
        Some(endpoint)
    }

    /// The store of the pool that a request was [handed over](Self::hand_over) to, or else of this pool.
    pub(crate) fn store_of(&mut self, handed_over: Option<usize>) -> &mut S {
        let Self { store, others, .. } = self;
        let other = handed_over.and_then(|place| others.get_mut(place));
        other.map_or(store, |other| &mut other.store)
    }
}
