//! A stack under the mixed load: while one thing after another breaks ([`chaos`]), and for long ([`soak`]).

mod breakage;
pub(crate) mod chaos;
mod chaos_table;
mod fault;
mod growth;
mod recovery;
mod servable;
pub(crate) mod soak;
mod stack;
mod worker_memory;
