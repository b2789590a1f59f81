//! Gathers the readings of a pool's endpoints and publishes them.
//!
//! Scrape tasks write their endpoint's [`Slot`]; the publisher gathers the slots into a [`PoolSnapshot`], at
//! most every [`PUBLISH_INTERVAL`], however many slots change in between.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use endpoint_picker::pool::reading::Reading;
use metrics_agent_status::unseen_queue::{UnseenQueue, queue_scorers};
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::snapshot::{PoolSnapshot, Topology, Versions};
use crate::scrape::slot::{Health, Slot};

/// Minimum time between two versions of the readings.
pub const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

/// The time for which an endpoint is tried before the pool no longer waits for its first reading.
pub const FIRST_ROUND: Duration = Duration::from_secs(10);

/// Publishes one pool.
#[derive(Debug)]
pub struct PoolPublisher {
    clock: Clock,
    members: Mutex<Option<PublishedMembers>>,
    next_version: Mutex<u64>,
    first_round_done: AtomicBool,
    changed: Arc<Notify>,
    published: watch::Sender<Option<Arc<PoolSnapshot>>>,
}

#[derive(Clone, Debug)]
struct PublishedMembers {
    topology: Arc<Topology>,
    /// One for each endpoint of the pool, in its order.
    slots: Arc<[Arc<Slot>]>,
    topology_version: u64,
}

/// Numbers of endpoints, for the agent's own metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndpointCounts {
    /// Endpoints of the pool.
    pub endpoints: usize,
    /// Endpoints that are ready.
    pub ready: usize,
    /// Age of the oldest reading; `None` when no endpoint was scraped yet.
    pub oldest: Option<Duration>,
}

impl PoolPublisher {
    /// A pool without an endpoint set.
    pub fn new(clock: Clock) -> Self {
        // Versions are only compared for equality. Starting at the wall clock makes the versions of a
        // restarted agent new.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = u64::try_from(since_epoch.as_micros()).unwrap_or(0).max(1);
        Self {
            clock,
            members: Mutex::new(None),
            next_version: Mutex::new(seed),
            first_round_done: AtomicBool::new(false),
            changed: Arc::default(),
            published: watch::Sender::new(None),
        }
    }

    /// A number that was never used before.
    fn next_version(&self) -> u64 {
        let mut next = self.next_version.lock();
        let version = *next;
        *next = version.wrapping_add(1);
        version
    }

    /// Replaces the pool's endpoints and policy. The topology's version changes only if the topology does.
    ///
    /// # Panics
    ///
    /// When there is not one slot for each endpoint.
    pub fn install(&self, topology: Topology, slots: Vec<Arc<Slot>>) {
        assert_eq!(topology.pool.as_slice().len(), slots.len(), "every endpoint has a slot");
        let mut members = self.members.lock();
        let slots = slots.into();
        match &mut *members {
            Some(members) if *members.topology == topology => members.slots = slots,
            members => {
                let topology_version = topology.version();
                *members = Some(PublishedMembers { topology: Arc::new(topology), slots, topology_version });
            }
        }
        drop(members);
        self.note_change();
    }

    /// Notified when a slot of the pool has changed.
    pub fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Publishes a new version soon, because a slot has changed.
    pub fn note_change(&self) {
        self.changed.notify_one();
    }

    /// Receives each version; `None` until there is an endpoint set.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<PoolSnapshot>>> {
        self.published.subscribe()
    }

    /// Publishes forever, whenever something changed.
    pub async fn publish_changes(&self) {
        loop {
            self.changed.notified().await;
            self.publish();
            // A change during the pause leaves a permit, so the next version follows right after it.
            tokio::time::sleep(PUBLISH_INTERVAL).await;
        }
    }

    fn publish(&self) {
        let Some(members) = self.members.lock().clone() else { return };
        let ready = ready(&members.slots);
        let readings = members.slots.iter().zip(ready);
        let readings = readings.map(|(slot, ready)| Reading { ready, ..slot.reading() }).collect();
        let versions = Versions { topology: members.topology_version, readings: self.next_version() };
        let origins = members.slots.iter().map(|slot| slot.origin()).collect();
        let published = PoolSnapshot::new(self.clock, versions, members.topology, readings, origins);
        // Not `send`, which would keep the old version while there is no subscriber.
        self.published.send_replace(Some(Arc::new(published)));
    }

    /// Whether every endpoint of the first set was scraped successfully, or has been tried for
    /// [`FIRST_ROUND`]. It stays true when endpoints join later.
    pub fn first_round_done(&self) -> bool {
        if self.first_round_done.load(Ordering::Acquire) {
            return true;
        }
        let now = self.clock.now();
        let is_settled = |slot: &Arc<Slot>| {
            slot.has_reading() || slot.tried_for(now).is_some_and(|tried| tried >= FIRST_ROUND)
        };
        let members = self.members.lock();
        let done = members.as_ref().is_some_and(|members| members.slots.iter().all(is_settled));
        self.first_round_done.fetch_or(done, Ordering::AcqRel);
        done
    }

    /// The names of endpoints of which no scrape has succeeded yet.
    pub fn without_reading(&self) -> Vec<String> {
        let members = self.members.lock();
        let slots =
            members.iter().flat_map(|members| members.topology.pool.as_slice().iter().zip(&*members.slots));
        slots
            .filter(|(_, slot)| !slot.has_reading())
            .map(|(endpoint, _)| endpoint.name().to_owned())
            .collect()
    }

    /// The newest version; `None` until there is an endpoint set.
    pub fn published(&self) -> Option<Arc<PoolSnapshot>> {
        self.published.borrow().clone()
    }

    /// The reasons why last scrapes failed, by the endpoints' keys; without endpoints whose last scrape
    /// succeeded.
    pub fn scrape_failures(&self) -> HashMap<u64, Arc<str>> {
        let Some(members) = self.members.lock().clone() else { return HashMap::new() };
        let endpoints = members.topology.pool.as_slice().iter().zip(&*members.slots);
        endpoints.filter_map(|(endpoint, slot)| Some((endpoint.key(), slot.scrape_failure()?))).collect()
    }

    /// The queues of servers that have shown none, by the endpoints' keys.
    pub fn unseen_queues(&self) -> HashMap<u64, UnseenQueue> {
        let Some(members) = self.members.lock().clone() else { return HashMap::new() };
        let scorers = queue_scorers(members.topology.policy.as_ref());
        let endpoints = members.topology.pool.as_slice().iter().zip(&*members.slots);
        endpoints
            .filter_map(|(endpoint, slot)| Some((endpoint.key(), slot.unseen_queue(&scorers)?)))
            .collect()
    }

    /// Counts the endpoints.
    pub fn endpoint_counts(&self) -> EndpointCounts {
        let Some(members) = self.members.lock().clone() else { return EndpointCounts::default() };
        let now = self.clock.now();
        let mut counts = EndpointCounts { endpoints: members.slots.len(), ..EndpointCounts::default() };
        for (slot, ready) in members.slots.iter().zip(ready(&members.slots)) {
            counts.ready += usize::from(ready);
            counts.oldest = counts.oldest.max(slot.age(now));
        }
        counts
    }
}

/// Which endpoints are ready: all that have the best health. Endpoints whose scrapes fail are ready while
/// none is in good health, because the network or the agent is the likelier cause, and endpoints whose host
/// name is denied while no other serves, because the name servers are.
fn ready(slots: &[Arc<Slot>]) -> Vec<bool> {
    let healths: Vec<Health> = slots.iter().map(|slot| slot.health()).collect();
    let best = healths.iter().max().copied();
    healths.into_iter().map(|health| health != Health::NotReady && Some(health) == best).collect()
}

#[cfg(test)]
mod tests {
    use endpoint_picker::pool::{Endpoint, Endpoints};

    use super::*;

    fn pool(addresses: &[&str]) -> Topology {
        let endpoints =
            addresses.iter().map(|a| Endpoint::new((*a).to_owned(), a.parse().unwrap(), vec![])).collect();
        Topology::new(Endpoints::new("p".to_owned(), endpoints).unwrap(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_in_20_ms_are_one_version() {
        let publisher = Arc::new(PoolPublisher::new(Clock::start()));
        let mut seen = publisher.subscribe();
        let publishing = tokio::spawn({
            let publisher = Arc::clone(&publisher);
            async move { publisher.publish_changes().await }
        });
        publisher.install(pool(&["10.0.0.1:1"]), vec![Slot::new()]);
        seen.changed().await.unwrap();
        let first = seen.borrow_and_update().as_ref().unwrap().versions();
        let started = tokio::time::Instant::now();
        for _ in 0..19 {
            publisher.note_change();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!seen.has_changed().unwrap());
        seen.changed().await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(19));
        let second = seen.borrow_and_update().as_ref().unwrap().versions();
        assert_eq!(first.topology, second.topology);
        assert_ne!(first.readings, second.readings);
        publishing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_published_when_nothing_changed() {
        let publisher = Arc::new(PoolPublisher::new(Clock::start()));
        let mut seen = publisher.subscribe();
        tokio::spawn({
            let publisher = Arc::clone(&publisher);
            async move { publisher.publish_changes().await }
        });
        publisher.install(pool(&["10.0.0.1:1"]), vec![Slot::new()]);
        seen.changed().await.unwrap();
        seen.mark_unchanged();
        assert!(tokio::time::timeout(Duration::from_secs(60), seen.changed()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_round_is_done_when_each_was_scraped_or_tried_for_long_and_stays_done() {
        let clock = Clock::start();
        let publisher = PoolPublisher::new(clock);
        assert!(!publisher.first_round_done());
        let slots = vec![Slot::new(), Slot::new(), Slot::new()];
        publisher.install(pool(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]), slots.clone());
        slots[0].set_values(Reading::default(), clock.now());
        slots[1].mark_tried(clock.now());
        tokio::time::advance(FIRST_ROUND).await;
        slots[2].mark_tried(clock.now());
        assert!(!publisher.first_round_done(), "one was tried only now");
        assert_eq!(publisher.without_reading(), ["10.0.0.2:1", "10.0.0.3:1"]);
        tokio::time::advance(FIRST_ROUND).await;
        assert!(publisher.first_round_done());
        assert_eq!(publisher.without_reading(), ["10.0.0.2:1", "10.0.0.3:1"]);
        publisher.install(pool(&["10.0.0.4:1"]), vec![Slot::new()]);
        assert!(publisher.first_round_done());
    }

    #[test]
    fn failing_endpoints_are_not_ready_while_others_are_good_and_never_all() {
        let slots = vec![Slot::new(), Slot::new(), Slot::new()];
        slots[0].set_failing(true);
        assert_eq!(ready(&slots), [false, true, true]);
        slots[1].set_ready(false);
        assert_eq!(ready(&slots), [false, false, true]);
        slots[2].set_failing(true);
        assert_eq!(ready(&slots), [true, false, true]);
        slots[0].set_ready(false);
        slots[2].set_ready(false);
        assert_eq!(ready(&slots), [false; 3]);
    }

    #[test]
    fn endpoints_whose_host_name_is_denied_are_ready_only_while_no_other_is() {
        let slots = vec![Slot::new(), Slot::new(), Slot::new()];
        slots[0].set_denied(true);
        assert_eq!(ready(&slots), [false, true, true]);
        slots[1].set_failing(true);
        slots[2].set_failing(true);
        assert_eq!(ready(&slots), [false, true, true], "a failing one has an address");
        slots[1].set_ready(false);
        slots[2].set_denied(true);
        assert_eq!(ready(&slots), [true, false, true], "the name servers have lost the zone");
        slots[2].set_denied(false);
        assert_eq!(ready(&slots), [false, false, true]);
    }

    #[test]
    fn an_empty_set_needs_no_scrape() {
        let publisher = PoolPublisher::new(Clock::start());
        publisher.install(pool(&[]), vec![]);
        assert!(publisher.first_round_done());
        assert_eq!(publisher.endpoint_counts(), EndpointCounts::default());
    }

    #[tokio::test(start_paused = true)]
    async fn counts_have_the_age_of_the_oldest_reading() {
        let clock = Clock::start();
        let publisher = PoolPublisher::new(clock);
        let slots = vec![Slot::new(), Slot::new(), Slot::new()];
        publisher.install(pool(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]), slots.clone());
        slots[0].set_values(Reading::default(), clock.now());
        tokio::time::advance(Duration::from_secs(3)).await;
        slots[1].set_values(Reading::default(), clock.now());
        slots[2].set_ready(false);
        assert_eq!(
            publisher.endpoint_counts(),
            EndpointCounts { endpoints: 3, ready: 2, oldest: Some(Duration::from_secs(3)) }
        );
    }
}
