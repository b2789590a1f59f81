//! Makes pools of the objects of a cluster, each object by itself.
//!
//! Unlike files, whose manifests are valid together or not at all, an object that is refused takes nothing else with it: it is left
//! out with its reasons, and its last valid version stays in force. What contradicts an older object is refused, never the older
//! one. [`ClusterCatalogue`] does this without I/O; [`PlanWatch::of_cluster`](super::watch::PlanWatch::of_cluster) follows the
//! objects.

mod catalogue;
mod follow;
mod manifest;
mod selection;
mod settings;

pub use catalogue::ClusterCatalogue;
pub use manifest::ConfigCheck;
pub use settings::Settings;
