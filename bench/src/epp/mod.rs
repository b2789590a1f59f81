//! The EPP: its process, and how Envoy reaches it.

pub mod ext_proc;
mod process;

pub use process::{Epp, USER_AGENT, VERSION, binary, free_ports, recorded_version};
