//! The subcommands `check`, `snapshot`, `explain` and `doctor`.

pub mod agent_client;
pub mod check;
pub mod client_credentials;
mod columns;
pub mod doctor;
mod exchange;
pub mod explain;
mod pool_table;
mod queue_table;
pub mod recorded;
