//! What the picker costs, for `make bench`: the shipped proxy with the picker against the same proxy without it, and the figures
//! of the packages' own benches.
//!
//! Absolute figures are those of the machine and its other work. Both proxies therefore run at the same time and are put
//! under load in turns; a comparison is the median over the rounds.

mod contest;
mod module;
mod own_benches;
mod table;
mod turns;
mod upstreams;
mod wrk;

pub use contest::{Contest, Plan};
pub(crate) use contest::{body, shipped, wait_until_picking};
pub use module::module;
pub use own_benches::{agent, decisions};
pub use table::{Row, print};
pub(crate) use table::{median, rounded};
pub(crate) use upstreams::{PACED, Upstreams};
pub use wrk::version as wrk_version;
pub(crate) use wrk::{Load, run as run_wrk};
