//! Costs of the picker, for `make bench`: the shipped proxy in each form of the picker next to the same proxy
//! without it, and the figures of the packages' own benches.
//!
//! Absolute figures depend on the machine and its other work. All proxies therefore run at the same time and
//! are put under load in turns; a comparison is the median over the rounds.

mod aims;
mod cell;
mod comparison;
mod measurement;
mod module_size;
mod own_benches;
mod proxy;
mod proxy_kind;

pub(crate) use cell::{Cell, DEFAULT_CELLS};
pub(crate) use comparison::CostTable;
pub(crate) use measurement::{CostPlan, measure};
pub(crate) use module_size::module_sizes;
pub(crate) use own_benches::{agent, cached_prefixes, decisions, native_module};
pub(crate) use proxy_kind::ProxyKind;
