//! The requests of this proxy at one endpoint.

use core::time::Duration;
use std::collections::VecDeque;

use super::adapters::adapter_key;
use super::calibration::TokenLimits;
use super::change::Sent;
use super::places::Row;
use super::speed::Speed;
use crate::pool::reading::Reading;

/// Adapters of one endpoint that are kept; servers hold far fewer.
pub(super) const MAX_RECENT: usize = 64;

/// The requests of this proxy at one endpoint.
#[derive(Debug, Default)]
pub struct EndpointState {
    /// Requests whose first chunk has not come.
    pub(super) unanswered: u64,
    /// Tokens of the prompts in flight.
    pub(super) context: u64,
    /// When the endpoint last sent a first output, or got a request while it had none to read.
    pub(super) reads_since: Duration,
    /// Adapters in flight, with their requests.
    in_flight: Vec<(u64, u64)>,
    /// The adapters of the last requests, and of those that readings show to run, each once, with the time
    /// of the last use, the newest last.
    pub(super) recent: VecDeque<(u64, Duration)>,
    pub(super) row: Row,
    /// The time of the newest reading, and what was in flight when it arrived.
    pub(super) at_reading: Option<AtReading>,
    /// The token limits of requests that a predictor has sent.
    token_limits: TokenLimits,
    pub(super) speed: Speed,
}

/// An endpoint without requests and readings.
pub(super) static NOTHING: EndpointState = EndpointState {
    unanswered: 0,
    context: 0,
    reads_since: Duration::ZERO,
    in_flight: Vec::new(),
    recent: VecDeque::new(),
    row: Row::NEW,
    at_reading: None,
    token_limits: TokenLimits::NONE,
    speed: Speed::NEW,
};

/// The load in flight at an endpoint when its newest reading arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtReading {
    /// When the reading was taken.
    pub(super) taken: Duration,
    /// Requests.
    pub requests: f64,
    /// Tokens of their prompts.
    pub context: f64,
    /// Requests whose first chunk had not come; of other proxies an estimate.
    pub unanswered: f64,
}

impl EndpointState {
    /// Whether requests of the adapter are in flight, and how many adapters are.
    pub fn adapters_in_flight(&self, adapter: u64) -> (bool, usize) {
        (self.in_flight.iter().any(|&(known, _)| known == adapter), self.adapters())
    }

    /// Adapters that requests in flight have.
    pub(super) fn adapters(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether the adapter is among the last `count` that were sent here or ran here.
    pub fn is_recent(&self, adapter: u64, count: usize) -> bool {
        self.recent.iter().rev().take(count).any(|&(known, _)| known == adapter)
    }

    /// The last use of the adapter that the next one evicts where `count` fit; `None`: a place is empty, or
    /// requests in flight have all of them.
    pub fn next_evicted(&self, count: usize) -> Option<Duration> {
        let first = self.recent.len().checked_sub(count)?;
        let mut unused =
            self.recent.range(first..).filter(|&&(adapter, _)| !self.adapters_in_flight(adapter).0);
        unused.next().map(|&(_, at)| at)
    }

    /// When the endpoint last sent a first output, or got a request while it had none to read.
    pub fn reads_since(&self) -> Duration {
        self.reads_since
    }

    /// Tokens of the prompts in flight.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// The load in flight when the newest reading arrived; `None` before the first one.
    pub fn at_reading(&self) -> Option<&AtReading> {
        self.at_reading.as_ref()
    }

    /// Its times to first outputs over the times of the other endpoints, 0.25..=4; 1 for an equal endpoint.
    pub fn speed(&self) -> f64 {
        self.speed.factor()
    }

    /// The lowest limit for each further token of the requests in flight that a predictor has sent; `None`:
    /// none is in flight, or one of them has no limit.
    pub fn least_token_limit(&self) -> Option<Duration> {
        self.token_limits.least()
    }

    pub(super) fn sent(&mut self, at: Duration, Sent { prompt, adapter, is_alone, token_limit, .. }: Sent) {
        if is_alone {
            (self.unanswered, self.context) = (0, 0);
            self.in_flight.clear();
            self.token_limits.clear();
        }
        if let Some(limit) = token_limit {
            self.token_limits.add(limit);
        }
        if self.unanswered == 0 {
            self.reads_since = at;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.context = self.context.saturating_add(prompt);
        if adapter != 0 {
            if let Some((_, requests)) = self.in_flight.iter_mut().find(|(known, _)| *known == adapter) {
                *requests = requests.saturating_add(1);
            } else if self.in_flight.len() < MAX_RECENT {
                self.in_flight.push((adapter, 1));
            }
            self.used(adapter, at);
        }
    }

    /// Takes in the adapters that run by a reading. Requests of other proxies have loaded some of them.
    pub(super) fn runs(&mut self, reading: &Reading) {
        let at = reading.updated.unwrap_or_default();
        for name in reading.lora.iter().flat_map(|lora| &lora.running).take(MAX_RECENT) {
            self.used(adapter_key(name), at);
        }
    }

    fn used(&mut self, adapter: u64, at: Duration) {
        self.recent.retain(|&(known, _)| known != adapter);
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((adapter, at));
    }

    pub(super) fn answered(&mut self, at: Duration) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.reads_since = self.reads_since.max(at);
    }

    pub(super) fn ended(&mut self, prompt: u64, adapter: u64, is_answered: bool, token_limit: Option<u32>) {
        if let Some(limit) = token_limit {
            self.token_limits.remove(limit);
        }
        if !is_answered {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        self.context = self.context.saturating_sub(prompt);
        if let Some((_, requests)) = self.in_flight.iter_mut().find(|(known, _)| *known == adapter) {
            *requests -= 1;
        }
        self.in_flight.retain(|&(_, requests)| requests > 0);
    }
}
