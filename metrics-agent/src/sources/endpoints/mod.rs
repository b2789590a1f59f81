//! Endpoint discovery: from flags and from a file, by address or by host name.

mod discovery;
mod fields;
mod file;
mod file_watcher;
mod set;

pub use discovery::{Counters, Discovery, Limits, Sources, start};
pub use fields::LabelLimits;
pub use file::{FileError, PORT_OF_POOL, parse};
pub use file_watcher::WatchedFile;
pub use set::{Declared, DeclaredSet, EndpointSet, NoEndpoints};
