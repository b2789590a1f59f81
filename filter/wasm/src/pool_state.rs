//! A VM's copy of the pool, and what it decides with.

use core::time::Duration;

use endpoint_picker::cycle::{Request, View};
use endpoint_picker::decision::{Decision, FailureMode, Outcome};
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;
use endpoint_picker::prefix::PrefixIndex;
use endpoint_picker::reading::Reading;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_wire as wire;

use crate::board::Board;

/// Everything one VM knows of its pool.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) pipeline: Pipeline,
    failure_mode: FailureMode,
    known: Option<Known>,
    prefixes: PrefixIndex,
    rng: SplitMix64,
}

/// The pool as the newest good snapshot described it.
#[derive(Debug)]
struct Known {
    pool: Pool,
    topology_version: u64,
    readings: Vec<Reading>,
    readings_version: u64,
    arrived: Duration,
}

/// What a decision means for the request.
pub(crate) enum Verdict {
    /// Set the destination header to this.
    Route(String),
    /// Everything else, as decided.
    Other(Outcome),
}

impl PoolState {
    pub(crate) fn new(failure_mode: FailureMode, seed: u64) -> Self {
        Self {
            pipeline: Pipeline::default(),
            failure_mode,
            known: None,
            prefixes: PrefixIndex::default(),
            rng: SplitMix64::new(seed),
        }
    }

    /// The versions of topology and readings this VM has.
    pub(crate) fn versions(&self) -> Option<(u64, u64)> {
        self.known.as_ref().map(|known| (known.topology_version, known.readings_version))
    }

    /// Decides, and remembers where the prompt goes.
    pub(crate) fn decide(&mut self, request: &Request<'_>, has_body: bool, now: Duration) -> Verdict {
        let Some(known) = &self.known else { return Verdict::Other(self.failure_mode.without_snapshot()) };
        let view = View {
            pool: &known.pool,
            readings: &known.readings,
            readings_arrived: known.arrived,
            prefixes: &self.prefixes,
        };
        let decision = if has_body {
            self.pipeline.decide(request, &view, now, &mut self.rng)
        } else {
            self.pipeline.decide_without_body(request, &view, &mut self.rng)
        };
        self.pipeline.remember(&decision, &known.readings, &mut self.prefixes);
        verdict(decision, &known.pool)
    }

    /// Takes over what the board shows, if it is newer. Returns what to log when the endpoints changed.
    ///
    /// Nothing changes when it cannot be read; the error says why.
    pub(crate) fn catch_up(&mut self, board: &Board) -> Result<Option<String>, String> {
        let version = board.version().map_err(|error| error.to_string())?;
        if version.is_none() || version == self.versions().map(|(_, readings)| readings) {
            return Ok(None);
        }
        let Some((arrived, bytes)) = board.readings().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let snapshot = wire::decode(&bytes).map_err(|error| error.to_string())?;
        let mut news = None;
        if self.versions().map(|(topology, _)| topology) != Some(snapshot.topology_version) {
            let bytes = board.topology().map_err(|error| error.to_string())?;
            let carrier = wire::decode(&bytes).map_err(|error| error.to_string())?;
            let Some(topology) =
                carrier.topology.filter(|_| carrier.topology_version == snapshot.topology_version)
            else {
                // Another VM is between two writes; the next look finds both.
                return Ok(None);
            };
            let pool = wire::topology_into_core(topology).map_err(|error| error.to_string())?;
            news = Some(format!("pool {} has {} endpoints", pool.name(), pool.endpoints().len()));
            self.adopt(pool, snapshot.topology_version);
        }
        if let Some(known) = &mut self.known {
            known.readings_version = snapshot.readings_version;
            known.readings = snapshot
                .readings
                .into_iter()
                .map(|reading| wire::reading_into_core(reading, arrived))
                .collect();
            known.arrived = arrived;
        }
        Ok(news)
    }

    /// Puts a new set of endpoints in force; what is known about those that stay is kept.
    fn adopt(&mut self, pool: Pool, topology_version: u64) {
        if let Some(old) = &self.known {
            let moves = old.pool.moves_to(&pool);
            self.prefixes.remap(&moves);
        }
        self.known = Some(Known {
            pool,
            topology_version,
            readings: Vec::new(),
            readings_version: 0,
            arrived: Duration::ZERO,
        });
    }
}

fn verdict(decision: Decision, pool: &Pool) -> Verdict {
    match decision.outcome {
        Outcome::Route(endpoints) => {
            let addresses: Vec<&str> =
                endpoints.iter().map(|&endpoint| pool.endpoints()[endpoint].printed_address()).collect();
            Verdict::Route(addresses.join(","))
        }
        other => Verdict::Other(other),
    }
}
