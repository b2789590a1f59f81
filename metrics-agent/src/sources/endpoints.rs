//! The endpoints that there are.
//!
//! A source of endpoints is whatever feeds the channel of [`Discovery`]; flags and a file do so today.

mod discovery;
mod fields;
mod file;
mod file_watcher;
mod set;

pub use discovery::{Discovery, Sources, start};
pub use fields::LabelLimits;
pub use file::{FileError, parse};
pub use set::EndpointSet;
