//! Publishes pools: readings gathered into versioned snapshots for filters, and endpoint files for Envoy's
//! EDS.

pub mod eds;
pub mod pool_publisher;
pub mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metrics_agent_support::runtime::{Clock, Tasks};
use parking_lot::Mutex;
use pool_publisher::PoolPublisher;
use tokio_util::task::AbortOnDropHandle;

/// The pools by name. They are added and removed with the manifests.
#[derive(Debug)]
pub struct Pools {
    clock: Clock,
    tasks: Tasks,
    /// The namespace of names without one; `None`: pools have none.
    namespace: Option<String>,
    entries: Mutex<BTreeMap<String, PoolEntry>>,
}

#[derive(Debug)]
struct PoolEntry {
    publisher: Arc<PoolPublisher>,
    _task: AbortOnDropHandle<()>,
}

impl Pools {
    /// No pools. On a cluster, pools are named `namespace/name`, and a `name` alone means a pool in
    /// `namespace`.
    pub fn new(clock: Clock, tasks: Tasks, namespace: Option<String>) -> Self {
        Self { clock, tasks, namespace, entries: Mutex::default() }
    }

    /// The publisher of a pool.
    pub fn publisher(&self, name: &str) -> Option<Arc<PoolPublisher>> {
        let entries = self.entries.lock();
        let entry = match &self.namespace {
            Some(namespace) if !name.contains('/') => entries.get(&format!("{namespace}/{name}")),
            Some(_) | None => entries.get(name),
        };
        entry.map(|entry| Arc::clone(&entry.publisher))
    }

    /// All publishers, ordered by the pools' names.
    pub fn publishers(&self) -> Vec<(String, Arc<PoolPublisher>)> {
        let entries = self.entries.lock();
        entries.iter().map(|(name, entry)| (name.clone(), Arc::clone(&entry.publisher))).collect()
    }

    /// Serves the pools of these names and no others. Pools that stay keep their publisher. For other pools,
    /// waiting requests end without a new version.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(namespace: Option<&str>, names: [&str; 2]) -> Pools {
        let (tasks, _) = Tasks::new();
        let pools = Pools::new(Clock::start(), tasks, namespace.map(str::to_owned));
        pools.keep(&names.into());
        pools
    }

    fn is_same(pools: &Pools, a: &str, b: &str) -> bool {
        let publishers = pools.publisher(a).zip(pools.publisher(b));
        publishers.is_some_and(|(a, b)| Arc::ptr_eq(&a, &b))
    }

    #[tokio::test]
    async fn a_plain_name_is_that_of_a_pool_in_the_agents_namespace() {
        let of_cluster = pools(Some("team-a"), ["team-a/llama", "team-b/llama"]);
        assert!(
            is_same(&of_cluster, "llama", "team-a/llama") && !is_same(&of_cluster, "llama", "team-b/llama")
        );
        assert!(of_cluster.publisher("qwen").is_none() && of_cluster.publisher("team-c/llama").is_none());
        let of_files = pools(None, ["llama", "team-b/llama"]);
        assert!(of_files.publisher("llama").is_some() && !is_same(&of_files, "llama", "team-b/llama"));
    }
}
