//! Several proxies of one pool: proxies that share their changes through a store or through one agent, compared with one proxy, with
//! proxies that share nothing, and with the EPP, one for all proxies or one for each.
//!
//! All run in the same Envoy binary with the shipped configuration around them, in front of the same servers and under the same load, one
//! arrangement at a time. Each request goes to one of the proxies at random. Each round begins with another arrangement; figures are medians
//! over the rounds. Many rounds in simulated time are a test: `cargo test -p endpoint-picker-simulation -- rounds`.

pub(crate) mod choices;
mod fleet;
pub(crate) mod report;
