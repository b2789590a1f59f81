//! What the picker costs, for `make bench`: the shipped proxy with the picker beside the same proxy without it, and the figures
//! of the packages' own benches.
//!
//! Absolute figures depend on the machine and its other work. Both proxies therefore run at the same time and are put
//! under load in turns; a comparison is the median over the rounds.

mod comparison;
mod module_size;
mod own_benches;
mod proxy_pair;
mod turns;

pub(crate) use comparison::RoundPlan;
pub(crate) use module_size::module;
pub(crate) use own_benches::{agent, decisions};
pub(crate) use proxy_pair::ProxyPair;
