//! The EPP: its process, and how Envoy reaches it.

pub(crate) mod ext_proc;
mod process;

pub use process::VERSION;
pub(crate) use process::{Epp, PoolSource, USER_AGENT, binary};
