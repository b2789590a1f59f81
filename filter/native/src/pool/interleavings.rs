//! All interleavings of threads at shared state, tried by loom. `make test-unit` runs these tests with the
//! feature `loom`.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pool::load::Load;
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::v1;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::pool::SharedPool;
use crate::pool::store::SharedStore;
use crate::process::registry::ProcessRegistry;
use crate::process::subscribers::Subscribers;

const ONE: Load = Load { requests: 1, tokens: 100 };

/// Words of a thread's stack. loom's own 4 096 are too few for a pool that is made or adopts a view in a
/// debug build.
const STACK: usize = 1 << 15;

/// Starts a thread with enough stack for work with a pool.
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK).spawn(run).unwrap()
}

/// Tries all interleavings of a function that uses a pool.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let run = Arc::new(run);
    loom::model(move || {
        let run = Arc::clone(&run);
        spawn(move || run()).join().unwrap();
    });
}

/// A view of endpoints with these numbers.
fn view(hosts: &[u8]) -> Arc<PoolView> {
    let endpoint =
        |&n: &u8| v1::Endpoint { name: format!("e{n}"), address: format!("10.0.0.{n}:8000"), labels: vec![] };
    let topology = v1::Topology {
        pool: "p".to_owned(),
        endpoints: hosts.iter().map(endpoint).collect(),
        policy: Some(v1::Policy::default()),
    };
    let topology = Arc::new(Topology::compile(topology).unwrap());
    Arc::new(PoolView::new(topology, v1::Snapshot::default(), Duration::from_secs(1)))
}

/// Sends a request to the last endpoint. Returns the endpoint's key.
fn start(store: &mut SharedStore) -> u64 {
    store.transact(|view, ledger| {
        assert!(Arc::ptr_eq(view.pool(), ledger.pool()), "view and ledger have the same endpoints");
        let endpoint = view.pool().as_slice().last().unwrap().key();
        (endpoint, Change::started(endpoint, ONE).into_iter().collect())
    })
}

/// A whole request.
fn request(store: &mut SharedStore) {
    let endpoint = start(store);
    store.apply(vec![Change::Endpoint { endpoint, kind: ChangeKind::Ended(ONE) }].into());
}

#[test]
fn requests_of_two_workers_beside_a_newer_snapshot_leave_nothing_in_flight() {
    let (older, newer) = (view(&[1, 2]), view(&[3, 1]));
    model(move || {
        let pool = Arc::<SharedPool>::default();
        pool.adopt(Arc::clone(&older));
        let workers = [(); 2].map(|()| {
            let mut store = SharedStore::new(&pool);
            spawn(move || request(&mut store))
        });
        pool.adopt(Arc::clone(&newer));
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(Arc::ptr_eq(&pool.view(), &newer));
        assert_eq!(pool.read(Ledger::requests_in_flight), 0);
        pool.adopt(Arc::clone(&older));
        assert_eq!(pool.read(Ledger::requests_in_flight), 0, "nor at an endpoint that had left");
    });
}

#[test]
fn a_worker_that_ends_takes_its_loads_along_and_no_other() {
    let view = view(&[1]);
    model(move || {
        let pool = Arc::<SharedPool>::default();
        pool.adopt(Arc::clone(&view));
        let mut ends = SharedStore::new(&pool);
        let mut stays = SharedStore::new(&pool);
        let ending = spawn(move || {
            start(&mut ends);
        });
        start(&mut stays);
        ending.join().unwrap();
        assert_eq!(pool.read(|ledger| ledger.loads().to_vec()), [ONE]);
    });
}

/// A value that counts how many of it there are.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn users_at_the_same_time_share_a_value_and_the_last_one_ends_it() {
    loom::model(|| {
        let registry = Arc::new(ProcessRegistry::<&str, Counted>::new());
        let count = Arc::new(AtomicUsize::new(0));
        let attach = {
            let (registry, count) = (Arc::clone(&registry), Arc::clone(&count));
            move || {
                let make = || {
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, ()>(Counted(Arc::clone(&count)))
                };
                registry.get_or_make("pool", make).unwrap()
            }
        };
        let own = attach();
        let others = [(); 2].map(|()| {
            let attach = attach.clone();
            let own = Arc::clone(&own);
            thread::spawn(move || assert!(Arc::ptr_eq(&attach(), &own)))
        });
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let leaving = thread::spawn(move || drop(own));
        drop(attach());
        leaving.join().unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_subscriber_is_not_called_after_its_end() {
    loom::model(|| {
        let subscribers = Arc::<Subscribers<Box<dyn Fn() + Send>>>::default();
        let woken = Arc::new(AtomicUsize::new(0));
        let wake = {
            let woken = Arc::clone(&woken);
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        };
        let subscription = subscribers.add(Box::new(wake));
        let ticker = {
            let subscribers = Arc::clone(&subscribers);
            thread::spawn(move || {
                subscribers.for_each(|wake| wake());
                subscribers.for_each(|wake| wake());
            })
        };
        drop(subscription);
        let at_end = woken.load(Ordering::SeqCst);
        ticker.join().unwrap();
        assert_eq!(woken.load(Ordering::SeqCst), at_end);
    });
}
