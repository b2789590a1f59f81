//! Small files: how much of them is read, and when they changed.

pub(crate) mod limits;
pub(crate) mod poll;

pub(crate) use limits::yaml_problem;
pub use limits::{FileLimits, ReadError};
