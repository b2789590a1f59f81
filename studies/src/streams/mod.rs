//! The load of a gateway of a large pool, which benchmarks of short requests lack: thousands of streams that
//! are open at once, tens of thousands of chunks in a second, and prompts of a hundred thousand tokens.

mod clients;
pub(crate) mod held;
pub(crate) mod held_report;
mod open_files;
mod proxy;
pub(crate) mod traffic;
