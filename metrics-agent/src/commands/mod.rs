//! The subcommands `check`, `snapshot`, `explain` and `doctor`.

pub mod agent_client;
pub mod check;
pub mod doctor;
pub mod explain;
pub mod fetch;
pub mod recorded;
