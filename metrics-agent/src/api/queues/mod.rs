//! The queues of flow control, as the proxies report them.

pub mod earlier;
pub mod report;
pub mod status;
pub mod waits;
