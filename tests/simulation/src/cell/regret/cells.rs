//! The cells, as data.

use super::bars::{Bar, bar};
use crate::cell::conditions::{Conditions, Proxies, Resets};
use crate::cell::source::{ClosedLoop, Source};
use crate::cell::workloads::{Drawn, Workload};
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
    Open(Drawn, f64),
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

const STUDY: ClosedLoop = ClosedLoop::STUDY;

/// Closed loops, by the difference to the study's.
const CLOSED: [(&str, ClosedLoop); 8] = [
    ("two servers, 4 clients", STUDY),
    ("two servers, 1 client", ClosedLoop { clients: 1, ..STUDY }),
    ("two servers, 2 clients", ClosedLoop { clients: 2, ..STUDY }),
    ("two servers, 8 clients", ClosedLoop { clients: 8, ..STUDY }),
    ("two servers, 48 conversations", ClosedLoop { conversations: 48, ..STUDY }),
    ("two servers, 10 conversations", ClosedLoop { conversations: 10, ..STUDY }),
    ("two servers, one processor", ClosedLoop { shares_processor: true, ..STUDY }),
    ("two servers, 300 ms of thought", ClosedLoop { pause: Duration::from_millis(300), ..STUDY }),
];

const USUAL: Conditions = Conditions::USUAL;

/// Servers whose reported size is true and small, or too small, and servers with few places for adapters.
const SIZES: [Drawn; 3] = [Drawn::SmallCachesReported, Drawn::CachesBeyondReports, Drawn::Tenants];

/// Four workloads: of many turns, of long responses, of long prompts and of adapters.
const FOUR: &[Drawn] = &[Drawn::Conversations, Drawn::ShareGpt, Drawn::LongMix, Drawn::Adapters];

const fn read_every(milliseconds: u64) -> Conditions {
    Conditions { scrape_interval: Some(Duration::from_millis(milliseconds)), ..USUAL }
}

const fn sharing(milliseconds: u64) -> Conditions {
    Conditions { proxies: Proxies::Sharing(Duration::from_millis(milliseconds)), ..USUAL }
}

const ALONE: Conditions = Conditions { proxies: Proxies::Alone, ..USUAL };

/// Other conditions, and the workloads that are sent under them.
const OTHERS: &[(&str, Conditions, &[Drawn])] = &[
    ("readings of 200 ms", read_every(200), FOUR),
    ("readings of 1 s", read_every(1_000), FOUR),
    ("no readings", Conditions { scrape_interval: None, ..USUAL }, FOUR),
    (
        "no readings",
        Conditions { scrape_interval: None, ..USUAL },
        &[Drawn::Heterogeneous, Drawn::SlowServer, Drawn::SmallCaches],
    ),
    ("30 % past the picker", Conditions { foreign: 0.3, ..USUAL }, FOUR),
    ("30 % past the picker, readings of 1 s", Conditions { foreign: 0.3, ..read_every(1_000) }, FOUR),
    ("30 % past the picker", Conditions { foreign: 0.3, ..USUAL }, &[Drawn::Tenants]),
    ("four share, 5 ms", sharing(5), FOUR),
    ("four share, 30 ms", sharing(30), FOUR),
    ("four share, 30 ms", sharing(30), &[Drawn::Tenants]),
    ("four share, no readings", Conditions { scrape_interval: None, ..sharing(30) }, FOUR),
    ("four alone", ALONE, FOUR),
    ("four alone", ALONE, &[Drawn::Tenants]),
    ("four alone, readings of 1 s", Conditions { proxies: Proxies::Alone, ..read_every(1_000) }, FOUR),
    ("four alone, no readings", Conditions { scrape_interval: None, ..ALONE }, FOUR),
    (
        "chunks of 16",
        Conditions { chunk_tokens: 16, ..USUAL },
        &[Drawn::Conversations, Drawn::ShareGpt, Drawn::LongMix],
    ),
    (
        "chunks 5 ms late",
        Conditions { jitter: Duration::from_millis(5), ..USUAL },
        &[Drawn::Conversations, Drawn::ShareGpt, Drawn::LongMix],
    ),
    ("a restart", Conditions { resets: Resets::Restart, ..USUAL }, &[Drawn::Agents, Drawn::LargePrompts]),
];

impl RegretCell {
    fn new(name: String, requests: Requests, conditions: Conditions) -> Self {
        let bar = bar(&name);
        Self { name, requests, conditions, bar }
    }

    fn open(drawn: Drawn, load: f64, conditions: Conditions, suffix: &str) -> Self {
        let name = format!("{}, {:.0} %{suffix}", drawn.name(), load * 100.0);
        Self::new(name, Requests::Open(drawn, load), conditions)
    }

    /// All cells.
    pub fn all() -> Vec<Self> {
        let open =
            Drawn::ALL.into_iter().flat_map(|drawn| LOADS.map(|load| Self::open(drawn, load, USUAL, "")));
        let closed = CLOSED.map(|(name, closed)| {
            let conditions = Conditions { resets: Resets::Two, ..USUAL };
            Self::new(name.to_owned(), Requests::Closed(closed), conditions)
        });
        let in_turn = IN_TURN.map(|conversations| {
            let name = format!("{conversations} conversations in turn");
            Self::new(name, Requests::InTurn(conversations), USUAL)
        });
        let sizes = SIZES.map(|drawn| Self::open(drawn, LOAD, USUAL, ""));
        let others = OTHERS.iter().flat_map(|&(name, conditions, workloads)| {
            workloads.iter().map(move |&drawn| Self::open(drawn, LOAD, conditions, &format!(", {name}")))
        });
        open.chain(closed).chain(in_turn).chain(sizes).chain(others).collect()
    }

    /// Where its requests come from, if the capacity of its servers is this.
    pub(super) fn source(&self, capacity: f64) -> Source {
        match self.requests {
            Requests::Open(drawn, load) => {
                Source::Open { workload: Workload::Drawn(drawn), per_second: load * capacity }
            }
            Requests::InTurn(conversations) => Source::InTurn(conversations),
            Requests::Closed(closed) => Source::Closed(closed),
        }
    }

    /// Number of measured requests, of this many in an open loop: in closed loops a p90 needs fewer, because
    /// nothing piles up, and inference-perf sends 200.
    pub(super) fn requests(&self, of_open: usize) -> usize {
        match self.requests {
            Requests::Open(..) => of_open,
            Requests::InTurn(_) => 200,
            Requests::Closed(_) => of_open.div_ceil(4),
        }
    }
}
