//! What the picker costs, for `make bench`: the shipped proxy with the picker against the same proxy without it, and the figures
//! of the packages' own benches.
//!
//! Absolute figures are those of the machine and its other work. Both proxies therefore run at the same time and are put
//! under load in turns; a comparison is the median over the rounds.

mod contest;
mod module;
mod own_benches;
mod turns;

pub(crate) use contest::{Contest, Plan};
pub(crate) use module::module;
pub(crate) use own_benches::{agent, decisions};
