//! The cells, as data.

use super::bars::{Bar, bar};
use crate::cell::conditions::{Conditions, Proxies, Resets};
use crate::cell::source::{ClosedLoop, Source};
use crate::cell::workloads::Workload;
use std::time::Duration;

/// A cell of the table.
#[derive(Clone, Debug)]
pub struct RegretCell {
    /// Its name, which no other cell has.
    pub name: String,
    /// Its requests and their servers.
    pub(super) requests: Requests,
    pub(super) conditions: Conditions,
    /// The bar that the rules have to reach there.
    pub(super) bar: Bar,
}

/// The requests of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requests {
    /// A workload at a share of the capacity.
    Open(Workload, f64),
    /// Sessions of agents that need this many times the caches.
    OverCaches(f64),
    InTurn(usize),
    Closed(ClosedLoop),
}

/// Loads of the open loops, as shares of the capacity.
const LOADS: [f64; 3] = [0.6, 0.8, 0.95];

/// The load of cells with other conditions.
const LOAD: f64 = 0.8;

/// Conversations that inference-perf takes in turn: with 40 each of four servers has the same ones in round
/// robin, with 41 it has not.
const IN_TURN: [usize; 2] = [40, 41];

/// Sessions of agents, as multiples of the caches.
const OVER_CACHES: [f64; 3] = [1.0, 1.5, 2.0];

const USUAL: Conditions = Conditions::USUAL;

/// Servers whose reported size is true and small, or too small, and servers with few places for adapters.
const SIZES: [Workload; 3] =
    [Workload::SmallCachesReported, Workload::CachesBeyondReports, Workload::Tenants];

/// Four workloads: of many turns, of long responses, of long prompts and of adapters.
const FOUR: &[Workload] =
    &[Workload::Conversations, Workload::ShareGpt, Workload::LongMix, Workload::Adapters];

const fn read_every(milliseconds: u64) -> Conditions {
    Conditions { scrape_interval: Some(Duration::from_millis(milliseconds)), ..USUAL }
}

const fn sharing(milliseconds: u64) -> Conditions {
    Conditions { proxies: Proxies::Sharing(Duration::from_millis(milliseconds)), ..USUAL }
}

const ALONE: Conditions = Conditions { proxies: Proxies::Alone, ..USUAL };

/// Other conditions, and the workloads that are sent under them.
const OTHERS: &[(&str, Conditions, &[Workload])] = &[
    ("readings of 200 ms", read_every(200), FOUR),
    ("readings of 1 s", read_every(1_000), FOUR),
    ("no readings", Conditions { scrape_interval: None, ..USUAL }, FOUR),
    (
        "no readings",
        Conditions { scrape_interval: None, ..USUAL },
        &[Workload::Heterogeneous, Workload::SlowServer, Workload::SmallCaches],
    ),
    ("30 % past the picker", Conditions { foreign: 0.3, ..USUAL }, FOUR),
    ("30 % past the picker, readings of 1 s", Conditions { foreign: 0.3, ..read_every(1_000) }, FOUR),
    ("30 % past the picker, no readings", Conditions { foreign: 0.3, scrape_interval: None, ..USUAL }, FOUR),
    ("30 % past the picker", Conditions { foreign: 0.3, ..USUAL }, &[Workload::Tenants]),
    ("four share, 5 ms", sharing(5), FOUR),
    ("four share, 30 ms", sharing(30), FOUR),
    ("four share, 30 ms", sharing(30), &[Workload::Tenants]),
    ("four share, no readings", Conditions { scrape_interval: None, ..sharing(30) }, FOUR),
    ("four alone", ALONE, FOUR),
    ("four alone", ALONE, &[Workload::Tenants]),
    ("four alone, readings of 1 s", Conditions { proxies: Proxies::Alone, ..read_every(1_000) }, FOUR),
    ("four alone, no readings", Conditions { scrape_interval: None, ..ALONE }, FOUR),
    (
        "chunks of 16",
        Conditions { chunk_tokens: 16, ..USUAL },
        &[Workload::Conversations, Workload::ShareGpt, Workload::LongMix],
    ),
    (
        "chunks 5 ms late",
        Conditions { jitter: Duration::from_millis(5), ..USUAL },
        &[Workload::Conversations, Workload::ShareGpt, Workload::LongMix],
    ),
    (
        "a restart",
        Conditions { resets: Resets::Restart, ..USUAL },
        &[Workload::Agents, Workload::LargePrompts],
    ),
];

impl RegretCell {
    fn new(name: String, requests: Requests, conditions: Conditions) -> Self {
        let bar = bar(&name);
        Self { name, requests, conditions, bar }
    }

    fn open(workload: Workload, load: f64, conditions: Conditions, suffix: &str) -> Self {
        let name = format!("{}, {:.0} %{suffix}", workload.name(), load * 100.0);
        Self::new(name, Requests::Open(workload, load), conditions)
    }

    /// All cells.
    pub fn all() -> Vec<Self> {
        let open = Workload::ALL
            .into_iter()
            .flat_map(|workload| LOADS.map(|load| Self::open(workload, load, USUAL, "")));
        let closed = ClosedLoop::ALL.map(|(name, closed)| {
            let conditions = Conditions { resets: Resets::Two, ..USUAL };
            Self::new(name.to_owned(), Requests::Closed(closed), conditions)
        });
        let in_turn = IN_TURN.map(|conversations| {
            let name = format!("{conversations} conversations in turn");
            Self::new(name, Requests::InTurn(conversations), USUAL)
        });
        let over_caches = OVER_CACHES.map(|times| {
            let name = format!("{}, {times} times the caches", Workload::AgentSessions.name());
            Self::new(name, Requests::OverCaches(times), USUAL)
        });
        let sizes = SIZES.map(|workload| Self::open(workload, LOAD, USUAL, ""));
        let others = OTHERS.iter().flat_map(|&(name, conditions, workloads)| {
            workloads
                .iter()
                .map(move |&workload| Self::open(workload, LOAD, conditions, &format!(", {name}")))
        });
        open.chain(closed).chain(in_turn).chain(over_caches).chain(sizes).chain(others).collect()
    }

    /// Where its requests come from, if the capacity of its servers is this.
    pub(super) fn source(&self, capacity: f64) -> Source {
        match self.requests {
            Requests::Open(workload, load) => Source::Open { workload, per_second: load * capacity },
            Requests::OverCaches(times) => Source::OverCaches(times),
            Requests::InTurn(conversations) => Source::InTurn(conversations),
            Requests::Closed(closed) => Source::Closed(closed),
        }
    }

    /// Number of measured requests, of this many in an open loop: in closed loops a p90 needs fewer, because
    /// nothing piles up, and inference-perf sends 200.
    pub(super) fn requests(&self, of_open: usize) -> usize {
        match self.requests {
            Requests::Open(..) | Requests::OverCaches(_) => of_open,
            Requests::InTurn(_) => 200,
            Requests::Closed(_) => of_open.div_ceil(4),
        }
    }
}
