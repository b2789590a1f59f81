//! What the program does besides running: `check`, `snapshot` and `explain`.

pub mod agent_client;
pub mod check;
mod columns;
pub mod credentials;
pub mod explain;
mod pool_table;
pub mod recorded;
