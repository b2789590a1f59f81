//! The pods of pools.

mod decode;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use decode::DecodePod;
use metrics_agent_support::runtime::Tasks;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::client::Client;
use super::watch::{Resource, Selector, Update, Watch, WatchMetrics, WatchTarget};

/// The ready pods of each selector in use, ordered by name. A selector whose pods were not listed yet is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyPods(pub HashMap<PodSelector, Arc<[Arc<Pod>]>>);

/// The pods that a pool selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSelector {
    /// The pool's namespace.
    pub namespace: String,
    /// Labels and their values, all of which a pod must have.
    pub labels: BTreeMap<String, String>,
}

impl PodSelector {
    /// The selector as the API server reads it: `key=value` with commas.
    fn expression(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.labels {
            let separator = if text.is_empty() { "" } else { "," };
            text.extend([separator, key, "=", value]);
        }
        text
    }
}

/// Text for messages: `pods in "team-a" with "app=llama"`.
impl fmt::Display for PodSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pods in {:?} with {:?}", self.namespace, self.expression())
    }
}

/// A pod that is ready and not about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The pod's name.
    pub name: String,
    /// Identifies the pod for all time: a pod that is created again under its name has another one.
    pub uid: Arc<str>,
    /// The pod's address.
    pub ip: IpAddr,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The annotation with the active target ports, a list with commas; `None`: all target ports are active.
    pub active_ports: Option<String>,
    /// The address of the pod's node; `None`: not known.
    pub node: Option<IpAddr>,
}

#[cfg(any(feature = "testing", test))]
impl Pod {
    /// A pod of which only the uid counts.
    pub fn with_uid(uid: &str) -> Arc<Self> {
        let (name, ip) = ("pod".to_owned(), [10, 0, 0, 1].into());
        let labels = BTreeMap::new();
        Arc::new(Self { name, uid: uid.into(), ip, labels, active_ports: None, node: None })
    }
}

const PODS: Resource = Resource { group: "", version: "v1", kind: "Pod", name: "pods" };

/// Watches the pods of the selectors in use, until dropped.
#[derive(Debug)]
pub struct PodWatches {
    client: Client,
    max_pods: usize,
    tasks: Tasks,
    metrics: WatchMetrics,
    store: Arc<PodStore>,
    running: BTreeMap<PodSelector, AbortOnDropHandle<()>>,
}

/// The selectors whose pods were not listed yet.
#[derive(Clone, Debug)]
pub struct PendingPods(Arc<PodStore>);

impl PendingPods {
    /// The last problem of each selector, or the selector itself before a problem. Selectors whose pods may
    /// never be listed are left out.
    pub fn names(&self) -> Vec<String> {
        self.0.pending()
    }
}

impl PodWatches {
    pub(in crate::kubernetes) fn new(
        client: Client,
        max_pods: usize,
        tasks: Tasks,
        metrics: WatchMetrics,
    ) -> Self {
        let (store, running) = (Arc::default(), BTreeMap::new());
        Self { client, max_pods, tasks, metrics, store, running }
    }

    /// Receives the ready pods of all selectors in use.
    pub fn pods(&self) -> watch::Receiver<Arc<ReadyPods>> {
        self.store.pods()
    }

    /// Which selectors in use have no pods yet because they were not listed.
    pub fn pending(&self) -> PendingPods {
        PendingPods(Arc::clone(&self.store))
    }

    /// Watches the pods of these selectors from now on, and no others.
    pub fn set_selectors(&mut self, selectors: &BTreeSet<PodSelector>) {
        self.running.retain(|selector, _| selectors.contains(selector));
        self.store.keep(selectors);
        for selector in selectors {
            if !self.running.contains_key(selector) {
                let task = self.start(selector.clone());
                self.running.insert(selector.clone(), task);
            }
        }
    }

    fn start(&self, selector: PodSelector) -> AbortOnDropHandle<()> {
        let target = WatchTarget {
            resource: PODS,
            namespace: Some(selector.namespace.clone()),
            selector: Selector::Labels(selector.expression()),
        };
        let metrics = self.metrics.clone();
        let name = format!("watch of {target}");
        let store = Arc::clone(&self.store);
        let update = move |update| store.update(&selector, update);
        let watch = Watch::new(self.client.clone(), target, DecodePod, self.max_pods, metrics, update);
        self.tasks.spawn(name, watch.run())
    }
}

/// Gathers the pods of all selectors in use.
#[derive(Debug, Default)]
struct PodStore {
    parts: Mutex<BTreeMap<PodSelector, SelectedPods>>,
    published: watch::Sender<Arc<ReadyPods>>,
}

/// The pods of one selector.
#[derive(Debug, Default)]
struct SelectedPods {
    /// `None`: not listed yet.
    pods: Option<Arc<[Arc<Pod>]>>,
    /// Why they were not listed.
    problem: Option<String>,
    /// Whether they may never be listed.
    is_unavailable: bool,
}

impl PodStore {
    /// Receives the pods of all selectors.
    fn pods(&self) -> watch::Receiver<Arc<ReadyPods>> {
        self.published.subscribe()
    }

    /// Keeps the pods of these selectors only.
    fn keep(&self, selectors: &BTreeSet<PodSelector>) {
        let mut parts = self.parts.lock();
        let before = parts.len();
        parts.retain(|selector, _| selectors.contains(selector));
        let has_changed = parts.len() < before;
        for selector in selectors {
            if !parts.contains_key(selector) {
                parts.insert(selector.clone(), SelectedPods::default());
            }
        }
        if has_changed {
            self.publish(&parts);
        }
    }

    /// Takes over what the watch of this selector reports.
    fn update(&self, selector: &PodSelector, update: Update<Pod>) {
        let mut parts = self.parts.lock();
        let Some(part) = parts.get_mut(selector) else { return };
        match update {
            Update::Objects(pods) => {
                *part = SelectedPods { pods: Some(pods.into()), problem: None, is_unavailable: false };
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
    fn pending(&self) -> Vec<String> {
        let parts = self.parts.lock();
        let pending = parts.iter().filter(|(_, part)| part.pods.is_none() && !part.is_unavailable);
        pending.map(|(selector, part)| part.problem.clone().unwrap_or_else(|| selector.to_string())).collect()
    }

    /// Publishes under the lock, so that an older set cannot replace a newer one.
    fn publish(&self, parts: &BTreeMap<PodSelector, SelectedPods>) {
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
        Arc::new(Pod { name: name.to_owned(), uid: "u".into(), ip, labels, active_ports: None, node: None })
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
