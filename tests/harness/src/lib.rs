//! The harness of the end-to-end tests, the demo and the benchmarks: it starts the metrics agent and a real
//! Envoy around scripted model servers.
//!
//! - [`stack`]: model servers, agent and Envoy, started together and stopped together.
//! - [`program`]: one started program each. [`tools`]: where its binary comes from.
//! - [`Filter`]: the form of the filter. [`config`]: the shipped `envoy.yaml` for either form, with other
//!   ports and paths. [`endpoint_files`]: the files that list endpoints.
//! - [`statistics`]: the filter's statistics. [`scripted_agent`]: an agent that serves the snapshots of a
//!   test.
//! - [`configurations`]: configurations of the picker. [`objectives`]: a manifest of an objective whose
//!   requests are shed first.
//! - [`gate`]: a way to a server that can be cut. [`dns`]: a name server.
//! - [`shipped`]: the built filter, the shipped files, and the configuration in the documents.
//! - [`client`], [`subset_hint`], [`eventually`]: how a test sends requests and waits for an effect.
//!   [`stream_output`]: the output in a response.
//!
//! Everything listens on loopback and on ports that the kernel chose, so tests run side by side.

pub mod client;
pub mod config;
pub mod configurations;
pub mod dns;
pub mod endpoint_files;
pub mod eventually;
mod filter;
pub mod gate;
pub mod objectives;
pub mod program;
pub mod run_dir;
pub mod scripted_agent;
pub mod shipped;
pub mod stack;
pub mod statistics;
pub mod stream_output;
pub mod subset_hint;
pub mod tools;

pub use filter::Filter;
