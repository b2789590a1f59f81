//! Started programs; each ends with its handle.

mod agent;
mod browser;
mod envoy;
mod process;
pub mod process_tree;
mod server;
mod store;

pub use agent::Agent;
pub use browser::{Browser, Scheme};
pub use envoy::Envoy;
pub use process::Process;
pub use server::ServerProcess;
pub use store::Store;
