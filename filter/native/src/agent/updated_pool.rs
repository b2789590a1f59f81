//! A pool that a link keeps up to date. A view with other endpoints is adopted when clusters have them as
//! hosts, or after 250 ms.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{NewSnapshot, PollError, TopologyLog};
use endpoint_picker_engine::link::LinkedPool;
use endpoint_picker_engine::metrics::{SharingCounts, Totals};
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::prefix_caches::{CachesUpdate, ServedModels};
use endpoint_picker_engine::proxy::Result;
use endpoint_picker_engine::record::RecordOutbox;
use endpoint_picker_engine::static_pool::StaticPool;
use endpoint_picker_engine::worker_pool::store::PoolStore;

use super::prompt_texts::texts_of;
use crate::pool::store::SharedStore;
use crate::pool::{SharedPool, watchers};

/// The maximum time for which a view waits for clusters.
const HOSTS_WAIT: Duration = Duration::from_millis(250);

/// A pool that a link keeps up to date.
#[derive(Debug)]
pub(crate) struct UpdatedPool {
    store: SharedStore,
    adoption: Adoption,
    topology_log: TopologyLog,
}

impl UpdatedPool {
    /// The pool of this name in configurations.
    pub(crate) fn new(name: &str, store: SharedStore) -> Self {
        Self { store, adoption: Adoption::new(name), topology_log: TopologyLog::default() }
    }

    /// Takes the endpoints and the rules of a configuration into use.
    pub(super) fn set(&mut self, pool: &StaticPool, now: Duration) {
        let view = self.store.view();
        match pool.view(&view) {
            Ok(newer) => {
                if !Arc::ptr_eq(view.topology(), newer.topology()) {
                    log::info!("{pool}");
                }
                self.adoption.take(self.store.pool(), newer, now);
            }
            Err(error) => log::error!("the endpoints of a configuration cannot be used: {error}"),
        }
    }

    /// Whether a view waits for its adoption.
    pub(super) fn is_adopting(&self) -> bool {
        self.adoption.is_pending()
    }
}

impl LinkedPool for UpdatedPool {
    type Store = SharedStore;
    type Peer = SharedStore;

    fn store(&self) -> &SharedStore {
        &self.store
    }

    fn peer(&mut self) -> &mut SharedStore {
        &mut self.store
    }

    fn totals(&self) -> Totals {
        self.store.pool().totals()
    }

    fn records(&self) -> &RecordOutbox {
        self.store.pool().records()
    }

    /// Adopts the view that waits, if it is time. No snapshot is published before that.
    fn can_publish(&mut self, now: Duration) -> bool {
        self.adoption.advance(self.store.pool(), now);
        !self.adoption.is_pending()
    }

    fn publish(&mut self, newer: NewSnapshot<'_>, now: Duration) -> Result<()> {
        let Self { store, adoption, topology_log } = self;
        if !Arc::ptr_eq(store.view().topology(), newer.view.topology()) {
            topology_log.log(&newer.view, now);
        }
        adoption.take(store.pool(), newer.view, now);
        Ok(())
    }

    fn count_snapshot(&mut self) {
        self.store.pool().count_snapshot();
    }

    fn count_failed_poll(&mut self, reason: &PollError) {
        self.store.pool().count_failed_poll(reason);
    }

    fn update_caches(&mut self, update: Option<&CachesUpdate>, now: Duration) {
        // Templates are compiled before the lock.
        let models = update.and_then(CachesUpdate::models);
        let models = models.map(|models| Arc::new(ServedModels::new(models, texts_of)));
        self.store.pool().update_caches(update, models.as_ref(), now);
    }

    fn count_sharing(&mut self, counts: SharingCounts, proxies: usize) {
        self.store.pool().count_sharing(counts, proxies);
    }
}

/// Adopts the views of one pool.
#[derive(Debug)]
struct Adoption {
    /// The pool's name in configurations; a snapshot may have another, with its namespace.
    pool_name: Arc<str>,
    pending: Option<Pending>,
}

/// A view that waits.
#[derive(Debug)]
struct Pending {
    view: Arc<PoolView>,
    /// The change that clusters have to follow.
    change: u64,
    until: Duration,
}

impl Adoption {
    fn new(pool_name: &str) -> Self {
        Self { pool_name: pool_name.into(), pending: None }
    }

    /// Takes a newer view. Decisions use it at once, unless clusters have to add hosts.
    fn take(&mut self, pool: &SharedPool, newer: PoolView, now: Duration) {
        let view = Arc::new(newer);
        if Arc::ptr_eq(pool.view().topology(), view.topology()) {
            // A configuration may return to the present endpoints while others wait.
            self.pending = None;
            pool.adopt(view);
            return;
        }
        // Before the notice, so that clusters which it wakes find the new endpoints.
        pool.announce(view.pool());
        let change = watchers::notify(&self.pool_name);
        // The first view waits too, because the cluster of another pool may have to add its hosts.
        self.pending = Some(Pending { view, change, until: now + HOSTS_WAIT });
        self.advance(pool, now);
    }

    /// Whether a view waits.
    fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Adopts the view that waits, if it is time.
    fn advance(&mut self, pool: &SharedPool, now: Duration) {
        let Self { pool_name, pending } = self;
        let is_time = |it: &mut Pending| it.until <= now || watchers::have_followed(pool_name, it.change);
        if let Some(Pending { view, .. }) = pending.take_if(is_time) {
            pool.adopt(view);
            pool.count_topology();
            // The older view's endpoints are not described any more, so clusters may remove their hosts.
            watchers::notify(pool_name);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use endpoint_picker_engine::pool_view::Topology;
    use endpoint_picker_wire::v1;

    use super::*;
    use crate::pool::watchers::Watcher;

    const START: Duration = Duration::from_secs(1);

    #[test]
    fn decisions_use_other_endpoints_when_clusters_have_followed_or_after_a_while() {
        let view = |address: &str| {
            let endpoint =
                v1::Endpoint { name: address.to_owned(), address: address.to_owned(), labels: vec![] };
            let message =
                v1::Topology { pool: "ns/adoption".to_owned(), endpoints: vec![endpoint], policy: None };
            PoolView::new(Topology::compile(message).unwrap().into(), v1::Snapshot::default(), START)
        };
        let pool = SharedPool::default();
        let address_of = |pool: &endpoint_picker::pool::Endpoints| pool.as_slice()[0].address().to_string();
        let described = || pool.described().iter().map(|pool| address_of(pool)).collect::<Vec<_>>();
        let mut adoption = Adoption::new("adoption");
        let watcher = Watcher::subscribe(&"adoption".into(), Arc::new(|| {}));
        adoption.take(&pool, view("10.0.0.1:80"), START);
        assert!(
            pool.view().versions().is_none(),
            "the first one waits too: another pool's cluster may have to add its hosts"
        );
        assert_eq!(described(), ["10.0.0.1:80"]);
        watcher.update(|watcher| watcher.follow(watchers::last_change()));
        adoption.advance(&pool, START);
        assert_eq!(address_of(pool.view().pool()), "10.0.0.1:80");

        adoption.take(&pool, view("10.0.0.2:80"), START);
        adoption.advance(&pool, START);
        assert_eq!(address_of(pool.view().pool()), "10.0.0.1:80");
        assert_eq!(described(), ["10.0.0.2:80", "10.0.0.1:80"]);
        watcher.update(|watcher| watcher.follow(watchers::last_change()));
        adoption.advance(&pool, START);
        assert_eq!(address_of(pool.view().pool()), "10.0.0.2:80");
        assert_eq!(described(), ["10.0.0.2:80"]);

        adoption.take(&pool, view("10.0.0.3:80"), START);
        assert!(adoption.is_pending());
        adoption.take(&pool, PoolView::clone(&pool.view()), START);
        assert!(!adoption.is_pending(), "the present endpoints came back");
        assert_eq!(described(), ["10.0.0.2:80"]);
        adoption.take(&pool, view("10.0.0.3:80"), START);
        adoption.advance(&pool, START + HOSTS_WAIT);
        assert_eq!(described(), ["10.0.0.3:80"]);

        drop(watcher);
        adoption.take(&pool, view("10.0.0.4:80"), START);
        assert_eq!(described(), ["10.0.0.4:80"], "no cluster");
    }
}
