//! Gathers the objects of all watches.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{ClusterObject, ClusterObjects, ObjectsResult};
use crate::sources::kubernetes::watch::Update;

/// Gathers the objects of all watches, and publishes them once each watch has listed its objects or has none to list.
#[derive(Debug)]
pub(super) struct ObjectStore {
    parts: Mutex<Vec<Part>>,
    published: watch::Sender<ObjectsResult>,
}

/// The objects of one watch.
#[derive(Debug, Default)]
struct Part {
    objects: Vec<Arc<ClusterObject>>,
    /// Why nothing was listed yet; `None`: it was, or there is nothing to list.
    pending: Option<String>,
}

impl ObjectStore {
    /// No objects yet, of watches with these names.
    pub(super) fn new(watches: impl Iterator<Item = String>) -> Self {
        let part = |name| Part { objects: Vec::new(), pending: Some(name) };
        let parts: Vec<_> = watches.map(part).collect();
        let published = watch::Sender::new(gather(&parts));
        Self { parts: Mutex::new(parts), published }
    }

    /// Receives the objects of all watches.
    pub(super) fn objects(&self) -> watch::Receiver<ObjectsResult> {
        self.published.subscribe()
    }

    /// Takes over what the watch of this index reports.
    pub(super) fn update(&self, index: usize, update: Update<ClusterObject>) {
        let mut parts = self.parts.lock();
        let Some(part) = parts.get_mut(index) else { return };
        match update {
            Update::Objects(objects) => *part = Part { objects, pending: None },
            // The last objects stay.
            Update::Unavailable(_) | Update::Failed(_) if part.pending.is_none() => return,
            Update::Unavailable(_) => part.pending = None,
            Update::Failed(problem) => part.pending = Some(problem),
        }
        // Under the lock, so that an older gathering cannot replace a newer one.
        let _ = self.published.send_replace(gather(&parts));
    }
}

fn gather(parts: &[Part]) -> ObjectsResult {
    let pending: Vec<_> = parts.iter().filter_map(|part| part.pending.as_deref()).collect();
    if !pending.is_empty() {
        return Err(format!("not listed yet: {}", pending.join("; ")));
    }
    let mut objects: Vec<_> = parts.iter().flat_map(|part| part.objects.iter().cloned()).collect();
    objects.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Arc::new(ClusterObjects(objects)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::super::ObjectId;
    use super::*;

    fn object(kind: &str, name: &str) -> Arc<ClusterObject> {
        let id = ObjectId {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
        };
        let resource_version = "1".to_owned();
        Arc::new(ClusterObject {
            id,
            uid: "u".to_owned(),
            generation: None,
            resource_version,
            json: Json::Null,
        })
    }

    fn names(store: &ObjectStore) -> Result<Vec<String>, String> {
        let objects = store.published.borrow().clone()?;
        Ok(objects.0.iter().map(|object| object.id.name.clone()).collect())
    }

    #[test]
    fn objects_are_published_when_every_watch_has_listed_or_has_nothing_to_list() {
        let store = ObjectStore::new(["b", "a", "c"].map(str::to_owned).into_iter());
        store.update(0, Update::Objects(vec![object("B", "x"), object("B", "y")]));
        assert_eq!(names(&store).unwrap_err(), "not listed yet: a; c");
        store.update(1, Update::Failed("a: cannot reach the API server".to_owned()));
        assert_eq!(names(&store).unwrap_err(), "not listed yet: a: cannot reach the API server; c");
        store.update(2, Update::Unavailable("c: 404".to_owned()));
        store.update(1, Update::Objects(vec![object("A", "z")]));
        assert_eq!(names(&store).unwrap(), ["z", "x", "y"]);
        // A kind that is installed later.
        store.update(2, Update::Objects(vec![object("C", "w")]));
        assert_eq!(names(&store).unwrap(), ["z", "x", "y", "w"]);
    }

    #[test]
    fn objects_stay_while_a_watch_fails() {
        let store = ObjectStore::new(["a"].map(str::to_owned).into_iter());
        store.update(0, Update::Objects(vec![object("A", "x")]));
        let mut receiver = store.objects();
        receiver.mark_unchanged();
        for update in [Update::Failed(String::new()), Update::Unavailable(String::new())] {
            store.update(0, update);
            assert!(!receiver.has_changed().unwrap());
        }
        assert_eq!(names(&store).unwrap(), ["x"]);
        store.update(0, Update::Objects(Vec::new()));
        assert_eq!(names(&store).unwrap(), [""; 0]);
    }
}
