//! A snapshot that is adopted while a worker decides.

use std::sync::Arc;

use endpoint_picker::request::Request;
use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::ledger::{ChangeList, Ledger, LocalLedger};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::decision::Routing;
use endpoint_picker_engine::worker_pool::directive::Action;
use endpoint_picker_engine::worker_pool::store::{OwnStore, OwnView, PoolCopy, PoolStore};

use crate::fixture::{START, address, fewest_waiting, snapshot, topology};
use crate::sink::FakeSink;

/// A store in which another thread adopts a view before the next decision gets its ledger.
struct LateStore {
    copy: PoolCopy<LocalLedger>,
    newer: Option<Arc<PoolView>>,
}

impl PoolStore for LateStore {
    type View = OwnView;

    fn view(&self) -> Self::View {
        self.copy.view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.copy.read(read)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        if let Some(newer) = self.newer.take() {
            self.copy.adopt(newer);
        }
        self.copy.transact(decide)
    }

    fn apply(&mut self, changes: ChangeList) {
        self.copy.apply(changes);
    }
}

impl OwnStore for LateStore {
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.copy.adopt(newer)
    }
}

fn view(endpoints: &[u8], waiting: &[u64]) -> Arc<PoolView> {
    let topology = Topology::compile(topology(endpoints, fewest_waiting())).unwrap();
    Arc::new(PoolView::new(Arc::new(topology), snapshot(waiting), START))
}

#[test]
fn a_decision_is_by_the_view_that_belongs_to_the_ledger() {
    let mut store = LateStore { copy: PoolCopy::default(), newer: Some(view(&[3, 4, 5], &[9, 9, 0])) };
    store.adopt(view(&[1, 2], &[0, 9]));
    let config = Config::parse(br#"{"pool": "p"}"#).unwrap();
    let mut pool = WorkerPool::new(config, store, &FakeSink::default(), Form::Wasm, 1);
    let before = pool.view();
    let request = Request::default();
    let routing =
        Routing { request: &request, has_body: true, other: None, explain: true, fallback: None, now: START };
    let directive = pool.route(&before, &routing);
    let Action::Route(route) = directive.action else { panic!("{directive:?}") };
    assert_eq!(route.address(), address(5));
    let explanation = directive.explanation.unwrap();
    assert!(explanation.starts_with(&format!("routed; {}", address(5))), "{explanation}");
    assert_eq!(pool.store().read(|ledger| ledger.loads()[2].requests), 1);
}
