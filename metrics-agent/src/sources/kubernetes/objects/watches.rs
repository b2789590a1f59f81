//! One watch for each kind and namespace.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::decode::DecodeObject;
use super::kinds::{CONFIG_MAP, KINDS};
use super::store::ObjectStore;
use super::{ObjectsResult, PickerConfigMap};
use crate::files::FileLimits;
use crate::runtime::tasks::Tasks;
use crate::sources::kubernetes::Namespaces;
use crate::sources::kubernetes::client::Client;
use crate::sources::kubernetes::watch::{Resource, Selector, Target, Watch, WatchMetrics};

/// The watches of all kinds, until dropped.
#[derive(Debug)]
pub struct ObjectWatches {
    store: Arc<ObjectStore>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl ObjectWatches {
    pub(in crate::sources::kubernetes) fn start(
        client: &Client,
        namespaces: &Namespaces,
        config_map: Option<PickerConfigMap>,
        limits: FileLimits,
        tasks: &Tasks,
        metrics: &WatchMetrics,
    ) -> Self {
        let targets = targets(namespaces, config_map);
        let store = Arc::new(ObjectStore::new(targets.iter().map(Target::to_string)));
        let start = |(index, target): (usize, Target)| {
            let store = Arc::clone(&store);
            let decode = DecodeObject { resource: target.resource, max_bytes: limits.bytes };
            let name = format!("watch of {target}");
            let update = move |update| store.update(index, update);
            let watch = Watch::new(client.clone(), target, decode, limits.manifests, metrics.clone(), update);
            tasks.spawn(name, watch.run())
        };
        let tasks = targets.into_iter().enumerate().map(start).collect();
        Self { store, _tasks: tasks }
    }

    /// Receives the objects of all watches.
    pub fn objects(&self) -> watch::Receiver<ObjectsResult> {
        self.store.objects()
    }
}

fn targets(namespaces: &Namespaces, config_map: Option<PickerConfigMap>) -> Vec<Target> {
    let of_kind = |resource: Resource| {
        let target = move |namespace| Target { resource, namespace, selector: Selector::All };
        match namespaces {
            Namespaces::All => vec![target(None)],
            Namespaces::Named(names) => names.iter().cloned().map(Some).map(target).collect(),
        }
    };
    let config_map = config_map.map(|PickerConfigMap { namespace, name }| Target {
        resource: CONFIG_MAP,
        namespace: Some(namespace),
        selector: Selector::Name(name),
    });
    KINDS.into_iter().flat_map(of_kind).chain(config_map).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_watched_in_every_namespace_and_one_config_map() {
        let config_map = PickerConfigMap { namespace: "a".to_owned(), name: "picker".to_owned() };
        let named = Namespaces::Named(["a", "b"].map(str::to_owned).into());
        let targets = targets(&named, Some(config_map));
        assert_eq!(targets.len(), 2 * KINDS.len() + 1);
        let names: Vec<_> = targets.iter().map(Target::to_string).collect();
        assert_eq!(names[1], r#"inferencepools.inference.networking.k8s.io in "b""#);
        assert_eq!(names.last().unwrap(), r#"configmaps in "a" named "picker""#);
        assert_eq!(super::targets(&Namespaces::All, None).len(), KINDS.len());
    }
}
