//! Values, callbacks and threads of the whole process.

pub(crate) mod clock;
pub mod counts;
pub(crate) mod proxy_name;
pub(crate) mod registry;
pub(crate) mod subscribers;
pub(crate) mod sync;
pub(crate) mod thread;
