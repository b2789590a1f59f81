//! The pools that the agent serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::publish::pool_publisher::PoolPublisher;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;

/// The pools by name. They are added and removed with the manifests.
#[derive(Debug)]
pub struct Pools {
    clock: Clock,
    tasks: Tasks,
    entries: Mutex<BTreeMap<String, PoolEntry>>,
}

#[derive(Debug)]
struct PoolEntry {
    publisher: Arc<PoolPublisher>,
    _task: AbortOnDropHandle<()>,
}

impl Pools {
    /// No pools.
    pub fn new(clock: Clock, tasks: Tasks) -> Self {
        Self { clock, tasks, entries: Mutex::default() }
    }

    /// The publisher of a pool.
    pub fn publisher(&self, name: &str) -> Option<Arc<PoolPublisher>> {
        self.entries.lock().get(name).map(|entry| Arc::clone(&entry.publisher))
    }

    /// All publishers, ordered by the pools' names.
    pub fn publishers(&self) -> Vec<(String, Arc<PoolPublisher>)> {
        let entries = self.entries.lock();
        entries.iter().map(|(name, entry)| (name.clone(), Arc::clone(&entry.publisher))).collect()
    }

    /// Serves the pools of these names and no others. Pools that stay keep their publisher. For other pools, waiting requests end
    /// without a new version.
    pub fn keep(&self, names: &BTreeSet<&str>) {
        let mut entries = self.entries.lock();
        entries.retain(|name, _| names.contains(name.as_str()));
        for name in names {
            if !entries.contains_key(*name) {
                let publisher = Arc::new(PoolPublisher::new(self.clock));
                let publishing = Arc::clone(&publisher);
                let publish = async move { publishing.publish_changes().await };
                let task = self.tasks.spawn(format!("publisher of pool {name}"), publish);
                let entry = PoolEntry { publisher, _task: task };
                entries.insert((*name).to_owned(), entry);
            }
        }
    }
}
