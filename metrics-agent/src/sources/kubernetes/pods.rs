//! The pods of pools.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The ready pods of each selector in use, ordered by name. A selector whose pods were not listed yet is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyPods(pub HashMap<PodSelector, Arc<[Pod]>>);

/// The pods that a pool selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSelector {
    /// The pool's namespace.
    pub namespace: String,
    /// Labels and their values, all of which a pod must have.
    pub labels: BTreeMap<String, String>,
}

/// A pod that is ready and not about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The pod's name.
    pub name: String,
    /// Identifies the pod for all time: a pod that is created again under its name has another one.
    pub uid: String,
    /// The pod's address.
    pub ip: IpAddr,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The annotation with the active target ports, a list with commas; `None`: all target ports are active.
    pub active_ports: Option<String>,
}
