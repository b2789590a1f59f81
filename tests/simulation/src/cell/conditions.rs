//! Conditions between the clients and the servers of a cell.

use std::time::Duration;

/// The conditions of a run, beyond its requests and its servers.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Time between two scrapes of a server; `None`: nothing is ever scraped.
    pub scrape_interval: Option<Duration>,
    /// The proxies, each with its picker.
    pub proxies: Proxies,
    /// Share of the requests that go to a random server past all pickers. They are not measured.
    pub foreign: f64,
    /// Tokens of a response in a chunk after the first one.
    pub chunk_tokens: u64,
    /// Maximum by which a chunk is late at the proxy. Clients measure the time at the server.
    pub jitter: Duration,
    /// Resets of a server's cache.
    pub resets: Resets,
}

/// The proxies. With several, each request comes to a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxies {
    /// One.
    One,
    /// [Four](Self::SEVERAL) that share through one feed, every 20 ms as the product does. A message can be
    /// read this much later.
    Sharing(Duration),
    /// [Four](Self::SEVERAL) that share nothing.
    Alone,
}

/// When caches are emptied but for the blocks in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resets {
    /// Never.
    None,
    /// After a third and two thirds of the run, of one server, then of another. No reading shows it.
    Two,
    /// After half of the run, of one server, whose readings show that it was started then.
    Restart,
}

impl Proxies {
    /// Number of proxies where there are several.
    pub const SEVERAL: usize = 4;

    pub(super) fn number(self) -> usize {
        if self == Self::One { 1 } else { Self::SEVERAL }
    }
}

impl Resets {
    /// The parts of the run after which caches are emptied, and whether readings show it.
    pub(super) fn times(self) -> (&'static [f64], bool) {
        match self {
            Self::None => (&[], false),
            Self::Two => (&[1.0 / 3.0, 2.0 / 3.0], false),
            Self::Restart => (&[0.5], true),
        }
    }
}

impl Conditions {
    /// One proxy that gets every request, and readings of every 50 ms.
    pub const USUAL: Self = Self {
        scrape_interval: Some(Duration::from_millis(50)),
        proxies: Proxies::One,
        foreign: 0.0,
        chunk_tokens: 1,
        jitter: Duration::ZERO,
        resets: Resets::None,
    };
}
