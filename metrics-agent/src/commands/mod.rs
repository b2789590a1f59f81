//! The subcommands `check`, `snapshot` and `explain`.

pub mod agent_client;
pub mod check;
pub mod client_credentials;
mod columns;
pub mod explain;
mod pool_table;
mod queue_table;
pub mod recorded;
