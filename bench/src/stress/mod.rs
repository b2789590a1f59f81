//! Stacks under the mixed load: while one thing after another breaks ([`chaos`]), for long ([`soak`]), and
//! for long while parts are replaced ([`soak_whole`]).

mod bounds;
pub(crate) mod chaos;
mod proxies;
pub(crate) mod soak;
pub(crate) mod soak_whole;
mod stack;
mod usage;
mod worker_memory;
