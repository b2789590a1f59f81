//! The pools that are served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::board::Board;
use crate::clock::Clock;
use crate::tasks::Tasks;

/// The pools by name; they come and go with the manifests.
#[derive(Debug)]
pub struct Pools {
    clock: Clock,
    tasks: Tasks,
    served: Mutex<BTreeMap<String, Served>>,
}

#[derive(Debug)]
struct Served {
    board: Arc<Board>,
    _publisher: AbortOnDropHandle<()>,
}

impl Pools {
    /// No pools yet.
    pub fn new(clock: Clock, tasks: Tasks) -> Self {
        Self { clock, tasks, served: Mutex::default() }
    }

    /// A pool's board.
    pub fn board(&self, name: &str) -> Option<Arc<Board>> {
        self.served.lock().get(name).map(|served| Arc::clone(&served.board))
    }

    /// All boards, in the order of the pools' names.
    pub fn boards(&self) -> Vec<(String, Arc<Board>)> {
        let served = self.served.lock();
        served.iter().map(|(name, served)| (name.clone(), Arc::clone(&served.board))).collect()
    }

    /// Serves the pools of these names and no others. Those that stay keep their board; who waits for news of another is
    /// told that there are none.
    pub fn keep(&self, names: &BTreeSet<&str>) {
        let mut served = self.served.lock();
        served.retain(|name, _| names.contains(name.as_str()));
        for name in names {
            if !served.contains_key(*name) {
                let board = Arc::new(Board::new(self.clock));
                let publishing = Arc::clone(&board);
                let publish = async move { publishing.publish_changes().await };
                let publisher = self.tasks.spawn(format!("publisher of pool {name}"), publish);
                let pool = Served { board, _publisher: publisher };
                served.insert((*name).to_owned(), pool);
            }
        }
    }
}
