//! Small files: limits on their size, and polling for changes.

pub(crate) mod limits;
pub(crate) mod poll;

pub(crate) use limits::yaml_problem;
pub use limits::{FileLimits, ReadError};
