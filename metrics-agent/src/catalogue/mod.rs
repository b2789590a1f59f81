//! Which pools there are, which endpoints belong to each, and how their endpoints are scraped and picked.
//!
//! [`manifests`] checks every document by itself, [`plan`] combines them into a [`Plan`]. A plan is used only when everything is
//! right; [`Problems`] lists everything that is wrong, each with its file, document, path, value and the allowed values.
//! [`watch`] reads the manifests again whenever a file changes. [`cluster`] makes the same plan of a cluster's objects, each of
//! which is refused by itself. [`differences`] lists what changes for a user of the EPP.

pub mod cluster;
pub mod dialect;
pub mod differences;
mod manifests;
mod options;
pub mod plan;
mod refusal;
pub mod scraping;
pub mod watch;

pub use options::Options;
pub use plan::{Plan, PoolPlan};
pub use refusal::{Refusal, Refusals};

pub use crate::sources::problem::{Problem, Problems};
