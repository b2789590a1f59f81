//! Started programs; each ends with its handle.

mod agent;
mod asgi;
mod browser;
mod envoy;
mod process;
pub mod process_tree;
mod store;

pub use agent::Agent;
pub use asgi::AsgiServer;
pub use browser::{Browser, Scheme};
pub use envoy::Envoy;
pub use process::Process;
pub use store::Store;
