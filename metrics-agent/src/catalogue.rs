//! Which pools there are, which endpoints belong to each, and how their endpoints are scraped and picked.
//!
//! [`manifests`] checks every document by itself, [`plan`] combines them into a [`Plan`]. A plan is used only when everything is
//! right; [`Problems`] lists everything that is wrong, each with its file, document, path, value and the allowed values.
//! [`watch`] reads the manifests again whenever a file changes.

mod configs;
pub mod dialect;
mod duplicates;
mod manifests;
pub mod members;
mod options;
pub mod plan;
mod policies;
mod pool;
pub mod scraping;
mod shadows;
pub mod watch;

pub use options::Options;
pub use plan::Plan;
pub use pool::PoolPlan;

pub use crate::sources::problem::{Problem, Problems};
