//! Measurements of the picker in a real Envoy, all of them subcommands of one program.
//!
//! - `picker_cost`: the shipped proxy with the picker and without it (`make bench`).
//! - `bench_epp`: our picker beside the EPP's and beside round robin (`make bench-epp`, `make bench-intervals`,
//!   `make bench-choosing`).
//! - `bench_proxies`: several proxies that share their changes, beside one and beside such that do not (`make bench-proxies`).
//! - `stress`: requests that are lost while something breaks (`make chaos`), and what grows under long load (`make soak`).
//! - [`parity`]: our decisions beside the EPP's, one by one; its recorded answers are a test.
//! - `load`: the load generator. `report`: tables, and the machine they were measured on.
//! - [`epp`]: the EPP's process. `upstreams`: model servers that cost next to nothing.

pub mod commands;
pub mod parity;

mod bench_epp;
mod bench_proxies;
pub mod epp;
mod in_turns;
mod load;
mod manifests;
mod picker_cost;
mod report;
mod shipped_proxy;
mod stress;
mod timed_servers;
mod upstreams;
