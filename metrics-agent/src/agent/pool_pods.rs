//! The pods of the plan's pools, where a cluster is watched.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::watch;

use crate::catalogue::plan::members::Member;
use crate::catalogue::{Plan, PoolPlan};
use crate::sources::kubernetes::{PodSelector, PodWatches, ReadyPods};

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
/// endpoint has, are left out; returns how many of each.
pub(super) fn add(members: &mut Vec<Member>, pods: Vec<Member>, max: usize) -> LeftOut {
    let mut addresses: HashSet<_> = members.iter().map(|member| member.endpoint.address()).collect();
    let mut left_out = LeftOut::default();
    for pod in pods {
        if !addresses.insert(pod.endpoint.address()) {
            left_out.same_address += 1;
        } else if members.len() >= max {
            left_out.beyond_limit += 1;
        } else {
            members.push(pod);
        }
    }
    left_out
}

/// Endpoints of pods that are left out of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Endpoints whose address another endpoint has, such as a pod that has not ended yet.
    pub(super) same_address: usize,
    pub(super) beyond_limit: usize,
}

#[cfg(test)]
mod tests {
    use endpoint_picker::pool::Endpoint;

    use super::*;
    use crate::sources::kubernetes::Pod;

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

    fn member(address: &str, pod: Option<&str>) -> Member {
        let endpoint = Endpoint::new(format!("n/{address} {pod:?}"), address.parse().unwrap(), Vec::new());
        Member { endpoint, pod: pod.map(Pod::with_uid) }
    }

    #[test]
    fn an_address_is_used_once_and_the_limit_holds() {
        let mut members = vec![member("10.0.0.1:1", None)];
        let pods = [("10.0.0.1:1", "a"), ("10.0.0.2:1", "b"), ("10.0.0.2:1", "c"), ("10.0.0.3:1", "d")];
        let pods = pods.map(|(address, pod)| member(address, Some(pod))).to_vec();
        let left_out = add(&mut members, pods.clone(), 2);
        assert_eq!(left_out, LeftOut { same_address: 2, beyond_limit: 1 });
        assert_eq!(members, [member("10.0.0.1:1", None), member("10.0.0.2:1", Some("b"))]);
        assert_eq!(add(&mut Vec::new(), pods, 9).same_address, 1);
    }
}
