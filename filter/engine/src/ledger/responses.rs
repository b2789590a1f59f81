//! Counts of the responses of each endpoint, for reports. No decision depends on them.

use core::time::Duration;

use endpoint_picker::flow_control::Waits;
use endpoint_picker::pool::Pool;

/// The responses of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseCounts {
    /// Requests that failed there.
    pub failures: u64,
    /// How long the first byte of each body took.
    pub first_byte: Waits,
}

/// The responses of all endpoints that this proxy has sent requests to, since they came into the pool.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// In the order of the pool adopted last.
    endpoints: Vec<ResponseCounts>,
    /// How long the first byte of each stream of tokens took, since the ledger began.
    first_token: Waits,
}

impl Responses {
    /// Follows a change from one pool to another.
    pub(super) fn adopt(&mut self, older: &Pool, newer: &Pool) {
        let counts = |key| self.endpoints.get(older.index_of(key)?).copied();
        self.endpoints =
            newer.endpoints().iter().map(|endpoint| counts(endpoint.key()).unwrap_or_default()).collect();
    }

    /// A request failed at the endpoint of this index.
    pub(super) fn failed(&mut self, endpoint: usize) {
        if let Some(counts) = self.endpoints.get_mut(endpoint) {
            counts.failures += 1;
        }
    }

    /// The endpoint of this index has sent a body.
    pub(super) fn served(&mut self, endpoint: usize, first_byte: Duration, is_streamed: bool) {
        if let Some(counts) = self.endpoints.get_mut(endpoint) {
            counts.first_byte.add(first_byte);
        }
        if is_streamed {
            self.first_token.add(first_byte);
        }
    }

    pub(super) fn endpoints(&self) -> &[ResponseCounts] {
        &self.endpoints
    }

    pub(super) fn first_token(&self) -> &Waits {
        &self.first_token
    }
}
