//! One watch for each selector in use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::decode::DecodePod;
use super::store::PodStore;
use super::{PodSelector, ReadyPods};
use crate::runtime::tasks::Tasks;
use crate::sources::endpoints::LabelLimits;
use crate::sources::kubernetes::client::Client;
use crate::sources::kubernetes::watch::{Resource, Selector, Target, Watch, WatchMetrics};

const PODS: Resource = Resource { group: "", version: "v1", kind: "Pod", name: "pods" };

/// Watches the pods of the selectors in use, until dropped.
#[derive(Debug)]
pub struct PodWatches {
    client: Client,
    max_pods: usize,
    labels: LabelLimits,
    tasks: Tasks,
    metrics: WatchMetrics,
    store: Arc<PodStore>,
    running: BTreeMap<PodSelector, AbortOnDropHandle<()>>,
}

/// The selectors whose pods were not listed yet.
#[derive(Clone, Debug)]
pub struct PendingPods(Arc<PodStore>);

impl PendingPods {
    /// What is listed soon, with the last problem; what is forbidden is left out.
    pub fn names(&self) -> Vec<String> {
        self.0.pending()
    }
}

impl PodWatches {
    pub(in crate::sources::kubernetes) fn new(
        client: Client,
        max_pods: usize,
        labels: LabelLimits,
        tasks: Tasks,
        metrics: WatchMetrics,
    ) -> Self {
        let (store, running) = (Arc::default(), BTreeMap::new());
        Self { client, max_pods, labels, tasks, metrics, store, running }
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
        let target = Target {
            resource: PODS,
            namespace: Some(selector.namespace.clone()),
            selector: Selector::Labels(selector.expression()),
        };
        let (decode, metrics) = (DecodePod { labels: self.labels }, self.metrics.clone());
        let name = format!("watch of {target}");
        let store = Arc::clone(&self.store);
        let update = move |update| store.update(&selector, update);
        let watch = Watch::new(self.client.clone(), target, decode, self.max_pods, metrics, update);
        self.tasks.spawn(name, watch.run())
    }
}
