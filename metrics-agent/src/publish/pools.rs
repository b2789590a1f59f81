//! The pools that are served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::publish::pool_publisher::PoolPublisher;
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
    publisher: Arc<PoolPublisher>,
    _task: AbortOnDropHandle<()>,
}

impl Pools {
    /// No pools yet.
    pub fn new(clock: Clock, tasks: Tasks) -> Self {
        Self { clock, tasks, served: Mutex::default() }
    }

    /// A pool's publisher.
    pub fn publisher(&self, name: &str) -> Option<Arc<PoolPublisher>> {
        self.served.lock().get(name).map(|served| Arc::clone(&served.publisher))
    }

    /// All publishers, in the order of the pools' names.
    pub fn publishers(&self) -> Vec<(String, Arc<PoolPublisher>)> {
        let served = self.served.lock();
        served.iter().map(|(name, served)| (name.clone(), Arc::clone(&served.publisher))).collect()
    }

    /// Serves the pools of these names and no others. Those that stay keep their publisher; who waits for news of another is
    /// told that there are none.
    pub fn keep(&self, names: &BTreeSet<&str>) {
        let mut served = self.served.lock();
        served.retain(|name, _| names.contains(name.as_str()));
        for name in names {
            if !served.contains_key(*name) {
                let publisher = Arc::new(PoolPublisher::new(self.clock));
                let publishing = Arc::clone(&publisher);
                let publish = async move { publishing.publish_changes().await };
                let task = self.tasks.spawn(format!("publisher of pool {name}"), publish);
                let pool = Served { publisher, _task: task };
                served.insert((*name).to_owned(), pool);
            }
        }
    }
}
