//! What one decision looks at.

use core::time::Duration;

use crate::pool::Pool;
use crate::prefix::{PrefixIndex, PrefixMatch};
use crate::prompt::Prompt;
use crate::reading::Reading;
use crate::subset::Subset;

/// What a request asks for, as far as a decision needs to know.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The model that will serve it, after any rewrite.
    pub model: &'a str,
    /// Separates prompts of different users in the servers' caches.
    pub cache_salt: Option<&'a str>,
    /// The prompt, if the body has one.
    pub prompt: Option<&'a Prompt<'a>>,
    /// Endpoints the choice is restricted to.
    pub subset: Subset,
    /// Below zero: sheddable while the pool is saturated.
    pub priority: i32,
}

/// What is known of the pool at the time of a decision.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The endpoints.
    pub pool: &'a Pool,
    /// One for each endpoint of the pool, in its order; those missing at the end count as never scraped.
    pub readings: &'a [Reading],
    /// When the readings arrived, on the shell's clock.
    pub readings_arrived: Duration,
    /// Prompts sent so far.
    pub prefixes: &'a PrefixIndex,
}

/// A decision in progress: what plugins may look at.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The pool.
    pub pool: &'a Pool,
    /// How much of the prompt the endpoints have seen.
    pub prefix: &'a PrefixMatch,
    /// The time, on the shell's clock.
    pub now: Duration,
    readings: &'a [Reading],
}

impl<'a> Cycle<'a> {
    /// A decision over `readings`, one for each endpoint of the pool.
    pub(crate) fn new(
        request: &'a Request<'a>,
        pool: &'a Pool,
        readings: &'a [Reading],
        prefix: &'a PrefixMatch,
        now: Duration,
    ) -> Self {
        Self { request, pool, prefix, now, readings }
    }

    /// What the endpoint last said; nothing, if it was never scraped or the readings are too old to be used.
    pub fn reading(&self, endpoint: usize) -> &Reading {
        self.readings.get(endpoint).unwrap_or(&NOTHING_SAID)
    }
}

/// An endpoint that said nothing.
pub(crate) static NOTHING_SAID: Reading = Reading {
    ready: false,
    updated: None,
    waiting: None,
    running: None,
    kv_usage: None,
    lora: None,
    block_size: None,
    num_blocks: None,
};
