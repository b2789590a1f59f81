//! The rules of a queue, as the oracle reads them.

use core::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Fcfs,
    Edf,
    SloDeadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    GlobalStrict,
    RoundRobin,
    ProgramAware,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Static(f64),
    HoldbackByRank(f64),
    HoldbackByValue(f64),
    SoftReflective,
}

/// The half-life and the time to live of what is remembered of a program.
pub(crate) const HALF_LIFE: f64 = 10.0;
pub(crate) const PROGRAM_TTL: Duration = Duration::from_secs(30);

/// How long an evicted request that has ended is not counted again.
pub(crate) const GRACE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(crate) struct BandRules {
    pub(crate) priority: i32,
    pub(crate) max_requests: u64,
    pub(crate) max_bytes: u64,
    pub(crate) ttl: Option<Duration>,
    pub(crate) order: Order,
    pub(crate) share: Share,
}

#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The highest priority first; 0 is among them.
    pub(crate) bands: Vec<BandRules>,
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) no_endpoint_ttl: Option<Duration>,
    pub(crate) limit: Limit,
    pub(crate) evicts: bool,
    /// The service of a program decays in use too.
    pub(crate) decays_in_use: bool,
}

impl Rules {
    pub(crate) fn has_programs(&self) -> bool {
        self.bands.iter().any(|band| band.share == Share::ProgramAware)
    }
}
