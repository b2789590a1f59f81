//! Adopts views of a pool; those with other endpoints not before clusters have them as hosts.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::pool_view::PoolView;

use crate::shared::SharedPool;
use crate::watchers;

/// The maximum time for which a view waits for clusters.
const HOSTS_WAIT: Duration = Duration::from_millis(250);

/// Adopts the views of one pool.
#[derive(Debug)]
pub(super) struct Adoption {
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
    pub(super) fn new(pool_name: &str) -> Self {
        Self { pool_name: pool_name.into(), pending: None }
    }

    /// Takes a newer view. Decisions use it at once, unless clusters have to add hosts.
    pub(super) fn take(&mut self, pool: &SharedPool, newer: PoolView, now: Duration) {
        let view = Arc::new(newer);
        let older = pool.view();
        if Arc::ptr_eq(older.topology(), view.topology()) {
            pool.adopt(view);
            return;
        }
        pool.announce(view.pool());
        let change = watchers::notify(&self.pool_name);
        // Before the first snapshot no decision could go to a host meanwhile.
        let until = if older.versions().is_some() { now + HOSTS_WAIT } else { now };
        self.pending = Some(Pending { view, change, until });
        self.advance(pool, now);
    }

    /// Whether a view waits.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Adopts the view that waits, if it is time.
    pub(super) fn advance(&mut self, pool: &SharedPool, now: Duration) {
        let Self { pool_name, pending } = self;
        let is_time = |it: &mut Pending| it.until <= now || watchers::have_followed(pool_name, it.change);
        if let Some(Pending { view, .. }) = pending.take_if(is_time) {
            pool.adopt(view);
            pool.count_topology();
            // Others may have left.
            watchers::notify(pool_name);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use endpoint_picker_engine::pool_view::Topology;
    use endpoint_picker_wire::v1;

    use super::*;
    use crate::watchers::Watcher;

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
        let address_of = |pool: &endpoint_picker::pool::Pool| pool.endpoints()[0].address().to_string();
        let described = || pool.described().iter().map(|pool| address_of(pool)).collect::<Vec<_>>();
        let mut adoption = Adoption::new("adoption");
        let watcher = Watcher::new(&"adoption".into(), Arc::new(|| {}));
        adoption.take(&pool, view("10.0.0.1:80"), START);
        assert_eq!(described(), ["10.0.0.1:80"], "the first one at once");

        adoption.take(&pool, view("10.0.0.2:80"), START);
        adoption.advance(&pool, START);
        assert_eq!(address_of(pool.view().pool()), "10.0.0.1:80");
        assert_eq!(described(), ["10.0.0.2:80", "10.0.0.1:80"]);
        watcher.follow(watchers::last_change());
        adoption.advance(&pool, START);
        assert_eq!(address_of(pool.view().pool()), "10.0.0.2:80");
        assert_eq!(described(), ["10.0.0.2:80"]);

        adoption.take(&pool, view("10.0.0.3:80"), START);
        assert!(adoption.is_pending());
        adoption.advance(&pool, START + HOSTS_WAIT);
        assert_eq!(described(), ["10.0.0.3:80"]);

        drop(watcher);
        adoption.take(&pool, view("10.0.0.4:80"), START);
        assert_eq!(described(), ["10.0.0.4:80"], "no cluster");
    }
}
