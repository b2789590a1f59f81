//! Own pools whose `endpointPickerRef` names a Service that does not exist. As the API requires, their
//! requests get 503.
//!
//! The module learns it from the agent, not from xDS: Envoy Gateway does not translate again when a Service
//! comes or goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use metrics_agent_sources::kubernetes::{ClusterObject, ObjectsResult, Services};
use tokio::sync::watch;

use super::ownership::Ownership;
use super::pool::ReferencedPool;

/// Why such a pool serves no requests, for its clients and its status.
pub const MISSING_SERVICE: &str = "the Service of endpointPickerRef does not exist";

/// Follows the pools whose Service does not exist.
#[derive(Debug)]
pub struct PickerReferences {
    /// Which pools are own ones.
    ownership: Ownership,
    objects: watch::Receiver<ObjectsResult>,
    services: watch::Receiver<Services>,
    broken: BTreeSet<String>,
}

impl PickerReferences {
    /// The references of the pools among `objects` to `services`.
    pub fn new(
        ownership: Ownership,
        objects: watch::Receiver<ObjectsResult>,
        services: watch::Receiver<Services>,
    ) -> Self {
        Self { ownership, objects, services, broken: BTreeSet::new() }
    }

    /// The names of the pools whose Service does not exist, `namespace/name`.
    pub fn broken(&mut self) -> &BTreeSet<String> {
        let services = self.services.borrow_and_update().clone();
        self.broken = match &*self.objects.borrow_and_update() {
            Ok(objects) => broken(&objects.0, &services, &self.ownership),
            Err(_) => BTreeSet::new(),
        };
        &self.broken
    }

    /// Waits until [`Self::broken`] has changed; forever if nothing more is watched.
    pub async fn changed(&mut self) {
        loop {
            let is_watched = tokio::select! {
                changed = self.objects.changed() => changed.is_ok(),
                changed = self.services.changed() => changed.is_ok(),
            };
            if !is_watched {
                core::future::pending::<()>().await;
            }
            let earlier = self.broken.clone();
            if *self.broken() != earlier {
                return;
            }
        }
    }
}

fn broken(objects: &[Arc<ClusterObject>], services: &Services, ownership: &Ownership) -> BTreeSet<String> {
    let pools = objects.iter().filter_map(|object| ReferencedPool::read(&object.json, ownership));
    pools.filter(|pool| pool.lacks_service(services)).map(|pool| pool.pool.name).collect()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use metrics_agent_sources::kubernetes::{ClusterObjects, ObjectId};
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;

    fn pools(names: &[&str]) -> Arc<ClusterObjects> {
        let pool = |name: &&str| {
            let id = ObjectId {
                api_version: "inference.networking.k8s.io/v1".to_owned(),
                kind: "InferencePool".to_owned(),
                namespace: "team".to_owned(),
                name: (*name).to_owned(),
            };
            let json = json!({
                "apiVersion": id.api_version, "kind": id.kind, "metadata": {"namespace": "team", "name": name},
                "spec": {"endpointPickerRef": {"name": "epp"}},
            });
            let (uid, resource_version) = (String::new(), String::new());
            Arc::new(ClusterObject { id, uid, generation: None, resource_version, json })
        };
        Arc::new(ClusterObjects(names.iter().map(pool).collect()))
    }

    #[tokio::test(start_paused = true)]
    async fn pools_are_broken_until_their_service_is_there() {
        let (objects, read) = watch::channel(Err("not listed yet".to_owned()));
        let (services, existing) = watch::channel(Services::default());
        let ownership = Ownership { all: true, ..Ownership::default() };
        let mut references = PickerReferences::new(ownership, read, existing);
        assert_eq!(*references.broken(), BTreeSet::new());
        services.send_replace(Services::all(&[]));
        let _ = objects.send_replace(Ok(pools(&["a", "b"])));
        references.changed().await;
        assert_eq!(*references.broken(), ["team/a".to_owned(), "team/b".to_owned()].into());
        services.send_replace(Services::all(&[("other", "epp")]));
        let limit = Duration::from_secs(1);
        assert!(timeout(limit, references.changed()).await.is_err(), "another Service changes nothing");
        services.send_replace(Services::all(&[("team", "epp")]));
        references.changed().await;
        assert_eq!(*references.broken(), BTreeSet::new());
    }
}
