//! All cells, measured with all proxies in turns.

use super::cell::{Cell, Traffic};
use super::proxy::{Pool, RunningProxy, Turn};
use super::proxy_kind::ProxyKind;
use crate::in_turns::in_turns;
use crate::load::bodies::{NEW_NUMBER, chat_line};
use crate::report::Progress;
use crate::upstreams::PACED_SHORT;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prompts that differ from each other, so that the prefix rule spreads them over the endpoints.
const PROMPTS: usize = 500;
/// Opens connections to the servers, and fills the prefix index.
const WARM_UP: Duration = Duration::from_secs(1);
/// Starting a proxy takes about this long.
const START: Duration = Duration::from_secs(2);

/// Subject and duration of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct CostPlan {
    /// The first is the baseline of the comparison.
    pub(crate) kinds: Vec<ProxyKind>,
    pub(crate) cells: Vec<Cell>,
    /// In each round, every proxy has a turn.
    pub(crate) rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub(crate) turn: Duration,
}

/// The figures of all cells.
#[derive(Debug)]
pub(crate) struct Costs {
    pub(crate) kinds: Vec<ProxyKind>,
    pub(crate) cells: Vec<CellTurns>,
    pub(crate) memory: Vec<Memory>,
    /// Requests that were not answered well, and all.
    pub(crate) failed: u64,
    pub(crate) requests: u64,
    /// Requests that a picker left to Envoy.
    pub(crate) abstained: u64,
}

/// The turns of one cell.
#[derive(Debug)]
pub(crate) struct CellTurns {
    pub(crate) cell: Cell,
    /// In each round, a turn of each kind.
    pub(crate) rounds: Vec<Vec<Turn>>,
}

/// Private memory of the proxies after all their turns.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) endpoints: u16,
    pub(crate) workers: u32,
    /// Costs of each kind.
    pub(crate) bytes: Vec<u64>,
}

impl CostPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let turns = (self.turn * self.rounds + WARM_UP) * count(self.cells.len());
        let starts: usize = self.pools().map(|(_, workers)| workers.len()).sum();
        (turns + START * count(starts)) * count(self.kinds.len())
    }

    /// Each size of the pool, with its numbers of workers.
    fn pools(&self) -> impl Iterator<Item = (u16, Vec<u32>)> {
        let sizes: BTreeSet<u16> = self.cells.iter().map(|cell| cell.endpoints).collect();
        sizes.into_iter().map(|endpoints| {
            let cells = self.cells.iter().filter(|cell| cell.endpoints == endpoints);
            let workers: BTreeSet<u32> = cells.map(|cell| cell.workers).collect();
            (endpoints, workers.into_iter().collect())
        })
    }
}

/// Measures all cells.
pub(crate) async fn measure(plan: CostPlan, progress: &Progress) -> Result<Costs> {
    let mut costs = Costs {
        kinds: plan.kinds.clone(),
        cells: Vec::new(),
        memory: Vec::new(),
        failed: 0,
        requests: 0,
        abstained: 0,
    };
    for (endpoints, workers) in plan.pools() {
        progress.print(&format!("starting proxies for {endpoints} endpoints with {workers:?} workers"));
        let pool = Pool::start(&plan.kinds, endpoints.into(), &workers).await?;
        let mut cells: Vec<Cell> =
            plan.cells.iter().copied().filter(|cell| cell.endpoints == endpoints).collect();
        while let Some(&first) = cells.first() {
            let (together, others) = cells.into_iter().partition(|cell| cell.differs_only_in_workers(first));
            cells = others;
            costs.measure_together(&plan, &pool, together, progress).await?;
        }
        for workers in workers {
            let bytes = pool.with_workers(workers)?.iter().map(RunningProxy::memory);
            costs.memory.push(Memory { endpoints, workers, bytes: bytes.collect::<Result<_>>()? });
        }
    }
    Ok(costs)
}

impl Costs {
    /// Measures cells that differ only in the number of workers; their turns alternate.
    async fn measure_together(
        &mut self,
        plan: &CostPlan,
        pool: &Pool,
        cells: Vec<Cell>,
        progress: &Progress,
    ) -> Result<()> {
        let bodies = bodies(pool.folder(), *cells.first().context("a cell")?)?;
        let mut measured: Vec<CellTurns> =
            cells.iter().map(|&cell| CellTurns { cell, rounds: Vec::new() }).collect();
        for &cell in &cells {
            for proxy in pool.with_workers(cell.workers)? {
                proxy.turn(cell.load(), WARM_UP, &bodies)?;
            }
        }
        let abstained = pool.abstained().await?;
        let kinds: Vec<usize> = (0..plan.kinds.len()).collect();
        for round in 0..plan.rounds {
            for CellTurns { cell, rounds } in &mut measured {
                let proxies = pool.with_workers(cell.workers)?;
                let mut turns: Vec<Option<Turn>> = vec![None; proxies.len()];
                for kind in in_turns(&kinds, round) {
                    let turn = proxies[kind].turn(cell.load(), plan.turn, &bodies)?;
                    ensure!(
                        turn.figures.requests > 0,
                        "{}: no request of {cell} was answered",
                        plan.kinds[kind]
                    );
                    self.requests += turn.figures.requests;
                    self.failed += turn.figures.failed;
                    turns[kind] = Some(turn);
                }
                rounds.push(turns.into_iter().flatten().collect());
            }
        }
        self.abstained += pool.abstained().await? - abstained;
        for turns in &measured {
            progress.print(&turns.summary(&plan.kinds));
        }
        self.cells.append(&mut measured);
        Ok(())
    }
}

/// A file with the requests of a cell, a body in each line.
fn bodies(folder: &Path, cell: Cell) -> Result<PathBuf> {
    let Cell { traffic, bytes, .. } = cell;
    let path = folder.join(format!("bodies-{traffic:?}-{bytes}"));
    let text: String = match traffic {
        Traffic::NewPrompts => chat_line(NEW_NUMBER, bytes, false),
        Traffic::Saturating | Traffic::Steady => {
            (0..PROMPTS).map(|number| chat_line(number, bytes, false)).collect()
        }
        Traffic::Streamed => (0..PROMPTS).map(|number| chat_line(number, bytes, true)).collect(),
        Traffic::Paced => {
            let line = |number| chat_line(number, bytes, true);
            let paced = |line: String| line.replace("}\n", &format!(",\"user\":\"{PACED_SHORT}\"}}\n"));
            (0..PROMPTS).map(line).map(paced).collect()
        }
    };
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}
