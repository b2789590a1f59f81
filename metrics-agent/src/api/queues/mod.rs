//! The queues of flow control, as the proxies report them.

pub mod earlier;
pub mod outcomes;
pub mod report;
pub mod status;
pub mod tenants;
pub mod waits;
