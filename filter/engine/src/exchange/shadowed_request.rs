//! What is kept of a request that another picker has routed, until its own decision can be made.

use crate::worker_pool::comparison::PickAddresses;

/// A request whose body is read as it passes.
#[derive(Debug)]
pub(super) struct ShadowedRequest {
    pub(super) pick: PickAddresses,
    /// The part of the body that has passed, as far as it is kept.
    pub(super) body: Vec<u8>,
    /// The next look at the body is when this many bytes have passed.
    pub(super) until: usize,
}
