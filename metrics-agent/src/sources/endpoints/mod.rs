//! Endpoint discovery: from flags and from a file.

mod discovery;
mod fields;
mod file;
mod file_watcher;
mod set;

pub use discovery::{Discovery, Sources, start};
pub use fields::LabelLimits;
pub use file::{FileError, parse};
pub use set::EndpointSet;
