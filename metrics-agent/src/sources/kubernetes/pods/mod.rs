//! The pods of pools.

mod decode;
mod store;
mod watches;

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

pub use watches::{PendingPods, PodWatches};

/// The ready pods of each selector in use, ordered by name. A selector whose pods were not listed yet is absent.
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

/// For messages: `pods in "team-a" with "app=llama"`.
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
}
