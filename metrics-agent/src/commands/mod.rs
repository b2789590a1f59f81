//! The subcommands `check`, `snapshot`, `explain` and `doctor`.

pub mod agent_client;
pub mod check;
mod columns;
pub mod doctor;
pub mod explain;
pub mod fetch;
mod pool_table;
mod queue_table;
pub mod recorded;
