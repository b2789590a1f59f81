//! Stacks under the mixed load: while one thing after another breaks ([`chaos`]), and for long ([`soak`]).

pub(crate) mod chaos;
mod growth;
pub(crate) mod soak;
mod stack;
mod worker_memory;
