//! A pool with the caches of its servers, as a proxy has them from the agent.

use endpoint_picker::cached_prefixes::PromptTexts;
use endpoint_picker::request::body::Api;
use endpoint_picker_engine::ledger::{ChangeList, Ledger};
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::prefix_caches::{CachesUpdate, PrefixCaches, ServedModels};
use endpoint_picker_engine::queue::Queue;
use endpoint_picker_engine::sharing::LocalPeer;
use endpoint_picker_engine::worker_pool::store::{OwnStore, OwnView, PoolCopy, PoolStore};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// A pool of one worker, the caches of its servers, and the queue in front of it. Nothing is known of the
/// caches before the first update.
#[derive(Debug)]
pub(super) struct PoolWithCaches {
    pool: PoolCopy<LocalPeer>,
    caches: PrefixCaches,
    /// `None`: the rules have none.
    queue: Option<RefCell<Queue>>,
}

impl PoolWithCaches {
    pub(super) fn new(has_queue: bool) -> Self {
        Self {
            pool: PoolCopy::new(LocalPeer::default()),
            caches: PrefixCaches::default(),
            queue: has_queue.then(RefCell::default),
        }
    }

    /// The ledger, which can be shared with other proxies.
    pub(super) fn peer_mut(&mut self) -> &mut LocalPeer {
        self.pool.ledger_mut()
    }

    /// Applies the messages of the agent's response.
    pub(super) fn update_caches(&mut self, messages: &[Vec<u8>], now: Duration) {
        for message in messages {
            let Ok(update) = CachesUpdate::read(message) else { continue };
            let models = update.models().map(|models| {
                Arc::new(ServedModels::new(models, |_| Arc::new(PlainPrompts) as Arc<dyn PromptTexts>))
            });
            for step in update.steps(models.as_ref()) {
                drop(self.caches.apply(&step));
            }
        }
        self.caches.mark_updated(now);
    }
}

impl PoolStore for PoolWithCaches {
    type View = OwnView;

    fn view(&self) -> Self::View {
        self.pool.view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.pool.read(read)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        self.pool.transact(decide)
    }

    fn apply(&mut self, changes: ChangeList) {
        self.pool.apply(changes);
    }

    fn with_caches<T>(&self, read: impl FnOnce(&PrefixCaches) -> T) -> Option<T> {
        Some(read(&self.caches))
    }

    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        self.queue.as_ref().map(|queue| run(&mut queue.borrow_mut()))
    }
}

impl OwnStore for PoolWithCaches {
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.pool.adopt(newer)
    }
}

/// A model whose completions are tokenized as they are.
#[derive(Debug)]
struct PlainPrompts;

impl PromptTexts for PlainPrompts {
    fn has_chats(&self) -> bool {
        false
    }

    fn chat(&self, _: Api, _: &[u8], _: usize) -> Option<String> {
        None
    }

    fn completion(&self, prompt: String) -> String {
        prompt
    }
}
