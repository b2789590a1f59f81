//! The subcommands `check`, `snapshot` and `explain`.

pub mod agent_client;
pub mod check;
pub mod client_credentials;
mod columns;
pub mod explain;
mod pool_table;
pub mod recorded;
