//! Gathers the pods of all selectors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Pod, PodSelector, ReadyPods};
use crate::sources::kubernetes::watch::Update;

/// Gathers the pods of all selectors in use.
#[derive(Debug, Default)]
pub(super) struct PodStore {
    parts: Mutex<BTreeMap<PodSelector, Part>>,
    published: watch::Sender<Arc<ReadyPods>>,
}

/// The pods of one selector.
#[derive(Debug, Default)]
struct Part {
    /// `None`: not listed yet.
    pods: Option<Arc<[Arc<Pod>]>>,
    /// Why they were not listed.
    problem: Option<String>,
    /// Whether they may never be listed.
    is_unavailable: bool,
}

impl PodStore {
    /// Receives the pods of all selectors.
    pub(super) fn pods(&self) -> watch::Receiver<Arc<ReadyPods>> {
        self.published.subscribe()
    }

    /// Keeps the pods of these selectors only.
    pub(super) fn keep(&self, selectors: &BTreeSet<PodSelector>) {
        let mut parts = self.parts.lock();
        let before = parts.len();
        parts.retain(|selector, _| selectors.contains(selector));
        let has_changed = parts.len() < before;
        for selector in selectors {
            if !parts.contains_key(selector) {
                parts.insert(selector.clone(), Part::default());
            }
        }
        if has_changed {
            self.publish(&parts);
        }
    }

    /// Takes over what the watch of this selector reports.
    pub(super) fn update(&self, selector: &PodSelector, update: Update<Pod>) {
        let mut parts = self.parts.lock();
        let Some(part) = parts.get_mut(selector) else { return };
        match update {
            Update::Objects(pods) => {
                *part = Part { pods: Some(pods.into()), problem: None, is_unavailable: false };
                self.publish(&parts);
            }
            Update::Unavailable(problem) => {
                part.problem = Some(problem);
                part.is_unavailable = true;
            }
            Update::Failed(problem) => part.problem = Some(problem),
        }
    }

    /// The selectors whose pods were not listed yet but may soon be, with the reason.
    pub(super) fn pending(&self) -> Vec<String> {
        let parts = self.parts.lock();
        let pending = parts.iter().filter(|(_, part)| part.pods.is_none() && !part.is_unavailable);
        pending.map(|(selector, part)| part.problem.clone().unwrap_or_else(|| selector.to_string())).collect()
    }

    /// Publishes under the lock, so that an older set cannot replace a newer one.
    fn publish(&self, parts: &BTreeMap<PodSelector, Part>) {
        let listed = parts.iter().filter_map(|(selector, part)| Some((selector.clone(), part.pods.clone()?)));
        self.published.send_replace(Arc::new(ReadyPods(listed.collect())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(app: &str) -> PodSelector {
        PodSelector { namespace: "n".to_owned(), labels: [("app".to_owned(), app.to_owned())].into() }
    }

    fn pod(name: &str) -> Arc<Pod> {
        let ip = "10.0.0.1".parse().unwrap();
        let labels = BTreeMap::new();
        Arc::new(Pod { name: name.to_owned(), uid: "u".into(), ip, labels, active_ports: None })
    }

    fn names(store: &PodStore, app: &str) -> Option<Vec<String>> {
        let pods = store.published.borrow();
        Some(pods.0.get(&selector(app))?.iter().map(|pod| pod.name.clone()).collect())
    }

    #[test]
    fn pods_stay_while_their_selector_is_in_use() {
        let store = PodStore::default();
        store.keep(&[selector("a"), selector("b")].into());
        assert_eq!(names(&store, "a"), None);
        store.update(&selector("a"), Update::Objects(vec![pod("x"), pod("y")]));
        store.update(&selector("b"), Update::Objects(Vec::new()));
        assert_eq!((names(&store, "a").unwrap().len(), names(&store, "b").unwrap().len()), (2, 0));
        for update in [Update::Failed(String::new()), Update::Unavailable(String::new())] {
            store.update(&selector("a"), update);
            assert_eq!(names(&store, "a").unwrap(), ["x", "y"]);
        }
        store.keep(&[selector("b")].into());
        assert_eq!(names(&store, "a"), None);
        // A watch that is about to end.
        store.update(&selector("a"), Update::Objects(vec![pod("z")]));
        assert_eq!(names(&store, "a"), None);
        store.keep(&[selector("a"), selector("b")].into());
        assert_eq!(names(&store, "a"), None, "they are listed again");
    }

    #[test]
    fn pending_selectors_are_named_until_they_are_listed_or_cannot_be() {
        let store = PodStore::default();
        store.keep(&["a", "b", "c"].map(selector).into());
        store.update(&selector("a"), Update::Failed("a: 403".to_owned()));
        assert_eq!(store.pending(), ["a: 403", r#"pods in "n" with "app=b""#, r#"pods in "n" with "app=c""#]);
        store.update(&selector("a"), Update::Unavailable("a: 403".to_owned()));
        store.update(&selector("b"), Update::Objects(Vec::new()));
        store.update(&selector("b"), Update::Failed("b: no connection".to_owned()));
        assert_eq!(store.pending(), [r#"pods in "n" with "app=c""#]);
    }
}
