//! One state of a pool for all threads of the process.
//!
//! A [`SharedPool`] is a [view](endpoint_picker_engine::pool_view) that never changes and is replaced as a whole, and a
//! [ledger](endpoint_picker_engine::ledger) behind a lock. Each worker decides through a [`SharedStore`]. There are no copies of
//! the ledger, so nothing has to be carried between workers.

mod pool;
mod store;
pub(crate) mod sync;

pub use pool::{Polls, SharedPool};
pub use store::SharedStore;
