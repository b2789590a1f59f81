//! Measurements of the picker in a real Envoy, all of them subcommands of one program.
//!
//! - `picker_cost`: the shipped proxy with the picker and without it (`make bench`).
//! - `stress`: requests that are lost while something breaks (`make chaos`), and resources that grow under
//!   long load (`make soak`).
//! - [`parity`]: each of our decisions compared with the EPP's; its recorded responses are a test.
//! - [`load`]: the load generators. [`report`]: tables, and the machine that they were measured on.
//! - [`epp`]: the EPP's process. [`upstreams`]: model servers that cost next to nothing.
//!
//! Comparisons that are repeated rarely are in the workspace `studies`, which uses the public modules.

pub mod commands;
pub mod epp;
pub mod in_turns;
pub mod load;
pub mod manifests;
pub mod parity;
pub mod report;
pub mod shipped_proxy;
pub mod upstreams;

mod picker_cost;
mod stress;
