//! Requests and tokens in flight at an endpoint.

use core::ops::{AddAssign, SubAssign};

/// Maximum number of tokens of one request that count as load at an endpoint whose KV cache is not known, and
/// of a prompt from which anything is learnt: the longest context with which models are commonly served, that
/// of Llama 4 Maverick.
pub const MAX_REQUEST_TOKENS: u64 = 1 << 20;

/// Load in flight at one endpoint. Sums saturate at 2⁶³ − 1, differences at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests sent and not finished.
    pub requests: u64,
    /// The tokens they still cost, as `inflight-load-producer` counts them.
    pub tokens: u64,
}

impl Load {
    /// Maximum number of requests, and of tokens, in a sum: a signed number holds it, which processors turn
    /// into a float by one instruction.
    pub(crate) const MAX: u64 = u64::MAX / 2;

    /// The smaller of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { requests: self.requests.min(other.requests), tokens: self.tokens.min(other.tokens) }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests).min(Self::MAX);
        self.tokens = self.tokens.saturating_add(other.tokens).min(Self::MAX);
    }
}

impl SubAssign for Load {
    fn sub_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
    }
}

/// Load in fractions of a request and of a token: an average, or a part of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FractionalLoad {
    /// Requests; a difference can be negative.
    pub requests: f64,
    /// Tokens; a difference can be negative.
    pub tokens: f64,
}

impl From<Load> for FractionalLoad {
    fn from(Load { requests, tokens }: Load) -> Self {
        Self { requests: requests as f64, tokens: tokens as f64 }
    }
}

/// Load that a request reserves on an endpoint while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The endpoint's index in the pool.
    pub endpoint: usize,
    /// Released with the first output of the response, such as the computing of the prompt.
    pub prefill: Load,
    /// Released when the response ends.
    pub response: Load,
}
