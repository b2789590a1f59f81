//! The cost of an endpoint as a formula: no branches and no calls, so that the compiler computes several
//! endpoints with each instruction. Explanations and expectations come from it as scores do, so that they
//! cannot differ.

use crate::state::latency::{CostRow, Slopes};

/// Share of the tokens before a request that can have been read since the last first output, at most. Time
/// alone does not show that an endpoint is idle: only its next first output does. Without this reading of
/// tokens with time the p90 of agents was 1.4 times as long (simulated, 80 % of the capacity, one seed).
const MAX_READ: f64 = 0.8;

/// Requests in flight that the mean of the candidates has more when delays of others are weighed. With a few
/// requests in the pool the mean alone is a part of one, and a single request would make its endpoint several
/// times dearer than an idle one.
const MORE_THAN_MEAN: f64 = 1.0;

/// Rests of requests that a request waits for, per share of the KV cache above the share from which
/// requests wait: one rest where the cache is just full, because 20 · (1 − 0.95) = 1.
const KV_SLOPE: f64 = 20.0;

/// Rests of requests that a request waits for memory, at most. More would only order endpoints none of
/// which can take the request soon.
const MAX_KV_WAITS: f64 = 4.0;

/// Age in nanoseconds, 200 ms, at which a reading corrects loads by half of what it shows. Proxies that do
/// not share their loads would all send their requests to the server that was free when it was taken.
/// In 200 ms each server of a busy pool begins several requests, and readings of the default interval count
/// nearly in full. Half and double of it: `docs/benchmarks/2026-11-28-servers-and-adapters.md`.
const HALF_AGE: f64 = 2e8;

/// Milliseconds of a nanosecond.
const NANOSECOND: f64 = 1e-6;

/// 2^52: a number of this size has no fraction.
const NO_FRACTION: f64 = 4_503_599_627_370_496.0;

/// So that a quarter of a millisecond is rounded up whatever the rounding errors of its terms.
const TIE: f64 = 1e-6;

/// Limit of tokens to read, beyond any server: at 8 000 tokens a second these take 20 minutes.
pub(super) const MAX_TOKENS: f64 = 1e7;

/// The part of the cost that all endpoints have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formula {
    pub(super) slopes: Slopes,
    /// The time, as rows have it.
    pub(super) now: f64,
    /// Requests of other proxies: a factor.
    pub(super) elsewhere: f64,
    /// Tokens that a request has to have read, a mean.
    pub(super) uncached: f64,
    /// Arrivals per millisecond and endpoint; 0 before endpoints are compared.
    pub(super) arrivals: f64,
    /// Requests that a server works on at once; infinite if that is not known.
    pub(super) places: f64,
    /// Milliseconds for which a request keeps its place.
    pub(super) rest: f64,
    /// 1 / (the mean of the requests in flight at the candidates + [`MORE_THAN_MEAN`]); 0 before they are
    /// compared.
    pub(super) decoding_share: f64,
}

/// The part of the cost that the request and the endpoint have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostInputs {
    /// Requests in flight there, by [`Formula::requests`].
    pub(super) requests: f64,
    /// Tokens in flight there that this proxy knows of.
    pub(super) tokens: f64,
    /// Tokens of the request that the endpoint has not cached.
    pub(super) uncached: f64,
    /// Milliseconds for the adapter, and for the one that it evicts.
    pub(super) adapter: f64,
}

/// The cost of one endpoint and what it consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    /// Tokens of other requests that the endpoint has to read first.
    pub(super) backlog: f64,
    /// Tokens of the request that it has not cached.
    pub(super) uncached: f64,
    /// Requests in flight there.
    pub(super) requests: f64,
    /// Milliseconds for the adapter, and for the one that it evicts.
    pub(super) adapter: f64,
    /// Milliseconds for a place and for memory.
    pub(super) wait: f64,
    /// Requests that come to an endpoint while it reads the request's prompt.
    pub(super) meanwhile: f64,
    /// The factor of its times.
    pub(super) speed: f64,
    /// Milliseconds, rounded to half of one.
    pub(super) cost: f64,
}

impl Formula {
    /// Counts the delay of other requests from now on: of those at these endpoints, which have this many, and
    /// of those that arrive.
    pub(super) fn compare(&mut self, requests: &[f64], arrivals: f64) {
        let (sum, number) = (requests.iter().sum::<f64>(), requests.len() as f64);
        self.arrivals = arrivals;
        self.decoding_share = number / (sum + MORE_THAN_MEAN * number).max(1.0);
    }

    /// Requests in flight at the endpoint: those that are known, and more if its reading shows that others
    /// send there too. `counted` are all requests in flight, `known` those of them that are compared.
    ///
    /// Proxies that do not share see the same reading. If each corrected by all that it shows, they would
    /// avoid or prefer the server together, so each corrects by its own part of the requests.
    #[inline(always)]
    pub(super) fn requests(&self, row: &CostRow, counted: f64, known: f64) -> f64 {
        let unknown = row.shown + row.since * counted - known;
        known + unknown.max(0.0) / (self.elsewhere * self.fading(row))
    }

    /// The number by which the age of a reading divides what the reading shows: 1 for a new one.
    #[inline(always)]
    fn fading(&self, row: &CostRow) -> f64 {
        let ages = (self.now - row.taken).max(0.0) * HALF_AGE.recip();
        1.0 + ages * ages
    }

    /// The cost of an endpoint.
    #[inline(always)]
    pub(super) fn terms(&self, row: &CostRow, inputs: &CostInputs) -> Terms {
        let Slopes { per_token, per_request, .. } = self.slopes;
        let CostInputs { requests, uncached, adapter, .. } = *inputs;
        let speed = row.speed;
        let backlog = self.backlog(row, inputs.tokens);
        let for_place = self.wait_for_place(requests);
        let own = uncached * per_token;
        // Those that decode there wait while the prompt is read, and so do those that come meanwhile. Where
        // requests queue for a place, steps that read last longer, and places become free later for all.
        let meanwhile = self.arrivals * own;
        let delayed = 1.0 + requests * self.decoding_share + meanwhile;
        let read = (backlog * per_token + own + adapter) * delayed + meanwhile * for_place;
        let wait = for_place + self.wait_for_memory(row, uncached);
        let cost = speed * (read + per_request * requests) + wait;
        // The sum with the smallest number without a fraction is rounded, far faster than by a call.
        let doubled = (2.0 * cost + TIE + NO_FRACTION) - NO_FRACTION;
        Terms { backlog, uncached, requests, adapter, wait, meanwhile, speed, cost: doubled / 2.0 }
    }

    /// Tokens of other requests that the endpoint has to read first: those in flight, less those that it has
    /// read since its last first output, and those of requests that wait there and are not known.
    #[inline(always)]
    fn backlog(&self, row: &CostRow, tokens: f64) -> f64 {
        let tokens = tokens * self.elsewhere;
        let since = (self.now - row.reads_since).max(0.0);
        let (read, most) = (since * (NANOSECOND / self.slopes.per_token) / row.speed, MAX_READ * tokens);
        // Not by `min`, which takes four times the instructions because one side might not be a number.
        let read = if read < most { read } else { most };
        (tokens - read + row.waiting * self.uncached / self.fading(row)).min(MAX_TOKENS)
    }

    /// Milliseconds until the endpoint has a place for the request.
    #[inline(always)]
    fn wait_for_place(&self, requests: f64) -> f64 {
        (requests + 1.0 - self.places).max(0.0) * (self.rest / self.places)
    }

    /// Milliseconds until it has memory for the request.
    #[inline(always)]
    fn wait_for_memory(&self, row: &CostRow, uncached: f64) -> f64 {
        let more = (row.context + uncached).max(0.0);
        let above = row.above + more / row.memory;
        let above = if row.above * row.memory + more > 0.0 { above.max(0.0) } else { 0.0 };
        self.rest * (KV_SLOPE * above).min(MAX_KV_WAITS)
    }
}

impl Terms {
    /// The score of the cost.
    #[inline(always)]
    pub(super) fn score(&self) -> f64 {
        1_000.0 / (1_000.0 + self.cost)
    }
}
