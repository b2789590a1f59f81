//! Reports to the objects of a cluster: an Event on each refused one, and the status of pools.
//!
//! Every replica of the agent reports, without a leader: the second of two equal writes has no effect.

pub mod event;
pub mod pools;
pub mod status;
mod writing;

use tokio_util::task::AbortOnDropHandle;

use crate::runtime::tasks::Tasks;
use crate::sources::kubernetes::Client;
use pools::PoolInputs;
use status::Parent;
use writing::AGENT;

/// What is reported to objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReports {
    /// Whether refused objects get Events.
    pub events: bool,
    /// In whose name the status of pools is written; `None`: it is not written.
    pub status: Option<Parent>,
}

impl ObjectReports {
    /// Reports until the handles are dropped.
    pub fn start(self, client: &Client, inputs: PoolInputs, tasks: &Tasks) -> Vec<AbortOnDropHandle<()>> {
        let mut handles = Vec::new();
        if self.events {
            // In a pod, the pod's name.
            let instance = std::env::var("HOSTNAME").ok().filter(|name| (1..=128).contains(&name.len()));
            let instance = instance.unwrap_or_else(|| AGENT.to_owned());
            let report = event::report(client.clone(), instance, inputs.refusals.clone());
            handles.push(tasks.spawn("Events on refused objects", report));
        }
        if let Some(parent) = self.status {
            handles.push(tasks.spawn("status of pools", pools::report(client.clone(), parent, inputs)));
        }
        handles
    }
}
