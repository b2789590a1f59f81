//! The pods of the plan's pools, where a cluster is watched.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use metrics_agent_catalogue::plan::members::Member;
use metrics_agent_catalogue::{Plan, PoolPlan};
use metrics_agent_sources::endpoints::{Admission, LeftOut};
use metrics_agent_sources::kubernetes::{PodSelector, PodWatches, ReadyPods};
use tokio::sync::watch;

/// The pods of the plan's pools.
pub(super) struct PoolPods {
    watches: PodWatches,
    selectors: Selectors,
}

/// The selectors of the pools.
#[derive(Debug, Default)]
struct Selectors {
    /// The selector of each pool whose pods are listed; pools whose pods were never listed are absent.
    in_use: HashMap<String, PodSelector>,
}

impl PoolPods {
    pub(super) fn new(watches: PodWatches) -> Self {
        Self { watches, selectors: Selectors::default() }
    }

    /// Receives the ready pods of all selectors.
    pub(super) fn pods(&self) -> watch::Receiver<Arc<ReadyPods>> {
        self.watches.pods()
    }

    /// Watches the pods of the plan's pools.
    pub(super) fn watch(&mut self, plan: &Plan, ready: &ReadyPods) {
        let pools = plan.pools.iter().filter_map(|pool| Some((pool.name.as_str(), pool.members.selector()?)));
        self.watches.set_selectors(&self.selectors.watched(pools, ready));
    }

    /// The pool's endpoints; `None`: they were not listed yet.
    pub(super) fn members(&self, pool: &PoolPlan, ready: &ReadyPods) -> Option<Vec<Member>> {
        let pods = ready.0.get(self.selectors.in_use.get(&pool.name)?)?;
        Some(pool.members.of_pods(pods))
    }
}

impl Selectors {
    /// The selectors to watch for these pools. A pool whose selector has changed keeps the old selector's
    /// pods until the new selector's pods are listed.
    fn watched<'a>(
        &mut self,
        pools: impl Iterator<Item = (&'a str, PodSelector)>,
        ready: &ReadyPods,
    ) -> BTreeSet<PodSelector> {
        let mut before = core::mem::take(&mut self.in_use);
        let mut watched = BTreeSet::new();
        for (pool, selector) in pools {
            let old = before.remove(pool);
            let in_use = if ready.0.contains_key(&selector) { Some(selector.clone()) } else { old };
            watched.insert(selector);
            if let Some(in_use) = in_use {
                watched.insert(in_use.clone());
                self.in_use.insert(pool.to_owned(), in_use);
            }
        }
        watched
    }
}

/// Adds the endpoints of pods to a pool's others. Pods beyond the limit, and pods whose address another
/// endpoint has, are left out.
pub(super) fn add(members: &mut Vec<Member>, pods: Vec<Member>, max: usize) -> LeftOut {
    let mut admission = Admission::new(members.iter().map(|member| &member.endpoint), max);
    members.extend(pods.into_iter().filter(|pod| admission.admits(&pod.endpoint)));
    admission.left_out()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(app: &str) -> PodSelector {
        PodSelector { namespace: "n".to_owned(), labels: [("app".to_owned(), app.to_owned())].into() }
    }

    fn listed(apps: &[&str]) -> ReadyPods {
        ReadyPods(apps.iter().map(|app| (selector(app), Arc::default())).collect())
    }

    #[test]
    fn a_changed_selector_keeps_the_old_pods_until_the_new_ones_are_listed() {
        let mut selectors = Selectors::default();
        let mut watched = |pools: &[(&str, &str)], apps: &[&str]| {
            let pools = pools.iter().map(|(pool, app)| (*pool, selector(app)));
            let watched = selectors.watched(pools, &listed(apps));
            let in_use = selectors.in_use.get("p").cloned();
            (watched.into_iter().collect::<Vec<_>>(), in_use)
        };
        assert_eq!(watched(&[("p", "a")], &[]), (vec![selector("a")], None));
        assert_eq!(watched(&[("p", "a")], &["a"]), (vec![selector("a")], Some(selector("a"))));
        let both = vec![selector("a"), selector("b")];
        assert_eq!(watched(&[("p", "b")], &["a"]), (both.clone(), Some(selector("a"))));
        assert_eq!(watched(&[("p", "b")], &["a", "b"]), (vec![selector("b")], Some(selector("b"))));
        assert_eq!(watched(&[("p", "b"), ("q", "a")], &["b"]), (both, Some(selector("b"))));
        assert_eq!(watched(&[("q", "b")], &["b"]), (vec![selector("b")], None), "p is removed");
    }
}
