//! What the end-to-end tests, the demo and the benchmarks stand on: a scripted model server, and a harness that starts the
//! metrics agent and a real Envoy around it.
//!
//! - [`model_server`]: an OpenAI-style server over real sockets that says what it received and does what a test asks of it.
//! - [`stack`]: model servers, agent and Envoy, started together and stopped together.
//! - [`envoy`], [`agent`], [`process`], [`tools`]: one started program each, and where its binary comes from.
//! - [`asgi`]: a model server's routes on the Python stack of real ones.
//! - [`process_tree`]: what such a program takes, those that it starts among it.
//! - [`scripted_agent`]: an agent that says what a test wants.
//! - [`config`]: the shipped `envoy.yaml` with other ports and paths in it.
//! - [`parity`]: the EPP endpoint picker beside ours, decision by decision.
//! - [`module`]: what the built filter asks of Envoy.
//! - [`bench`]: what the picker costs. [`versus`]: the same for the EPP, and how good their choices are.
//! - [`chaos`]: what is lost while something breaks. [`soak`]: what grows under long load.
//! - [`client`], [`subset_hint`], [`eventually`]: what a test says to the stack, and how it waits for an effect.
//!
//! Everything listens on loopback and on ports that the kernel chose, so tests run side by side.

pub mod agent;
pub mod asgi;
pub mod bench;
pub mod browser;
pub mod chaos;
pub mod client;
pub mod config;
pub mod endpoint_files;
pub mod envoy;
pub mod eventually;
pub mod model_server;
pub mod module;
pub mod parity;
pub mod process;
pub mod process_tree;
mod run_dir;
pub mod scripted_agent;
pub mod snippets;
pub mod soak;
pub mod stack;
pub mod subset_hint;
pub mod tools;
mod traffic;
pub mod versus;
