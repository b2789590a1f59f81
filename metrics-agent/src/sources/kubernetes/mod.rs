//! Pools, their policies and their pods, as a Kubernetes API server has them.

mod objects;
mod pods;

pub use objects::{ClusterObject, ClusterObjects, ObjectId, ObjectsResult};
pub use pods::{Pod, PodSelector, ReadyPods};
