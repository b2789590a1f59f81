//! The costs as rows of a table: each proxy compared with the first.

use super::aims;
use super::cell::{Cell, Traffic};
use super::measurement::{CellTurns, Costs, Memory};
use super::proxy::Turn;
use super::proxy_kind::ProxyKind;
use crate::report::markdown::{met, table};
use crate::report::{median, rounded};
use std::fmt;
use std::time::Duration;

const MIB: f64 = 1_048_576.0;

/// All figures, compared with the first proxy's.
pub(crate) struct CostTable<'a>(pub(crate) &'a Costs);

/// How a figure is compared with the first proxy's, and the bound for the native module.
#[derive(Clone, Copy, Debug)]
enum Comparison {
    Ratio { least: Option<f64> },
    Added { most: Option<f64> },
}

/// The figures of one kind of measurement, and their comparison.
#[derive(Clone, Debug)]
struct Row {
    what: String,
    /// Medians over the rounds, of each kind of proxy.
    figures: Vec<String>,
    /// Differences of each kind but the first.
    compared: Vec<Compared>,
    comparison: Comparison,
}

/// The median over the rounds, and the range.
#[derive(Clone, Copy, Debug)]
struct Compared {
    median: f64,
    least: f64,
    most: f64,
}

impl Comparison {
    fn of(self, figure: f64, baseline: f64) -> f64 {
        match self {
            Self::Ratio { .. } => figure / baseline,
            Self::Added { .. } => figure - baseline,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Ratio { .. } => "×",
            Self::Added { .. } => "+",
        }
    }

    /// The bound, and whether this value is within it.
    fn aim(self, value: Option<f64>) -> [String; 2] {
        let (text, is_met) = match self {
            Self::Ratio { least: Some(least) } => (format!("≥ × {least}"), value.map(|value| value >= least)),
            Self::Added { most: Some(most) } => (format!("≤ + {most}"), value.map(|value| value <= most)),
            Self::Ratio { least: None } | Self::Added { most: None } => {
                return [String::new(), String::new()];
            }
        };
        is_met.map_or_else(|| [String::new(), String::new()], |is_met| [text, met(is_met).to_owned()])
    }
}

impl Compared {
    fn of(values: Vec<f64>) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { median: median(values), least, most }
    }
}

impl CellTurns {
    /// The median of a figure over the rounds, of each kind.
    fn medians(&self, figure: fn(&Turn) -> f64) -> Vec<f64> {
        let kinds = self.rounds.first().map_or(0, Vec::len);
        (0..kinds)
            .map(|kind| median(self.rounds.iter().map(|round| figure(&round[kind])).collect()))
            .collect()
    }

    /// Each kind but the first compared with the first, round by round.
    fn compared(&self, figure: fn(&Turn) -> f64, comparison: Comparison) -> Vec<Compared> {
        let kinds = self.rounds.first().map_or(0, Vec::len);
        let of = |kind: usize| {
            self.rounds.iter().map(move |round| comparison.of(figure(&round[kind]), figure(&round[0])))
        };
        (1..kinds).map(|kind| Compared::of(of(kind).collect())).collect()
    }

    fn row(&self, what: &str, figure: fn(&Turn) -> f64, comparison: Comparison) -> Row {
        Row {
            what: format!("{}: {what}", self.cell),
            figures: self.medians(figure).into_iter().map(rounded).collect(),
            compared: self.compared(figure, comparison),
            comparison,
        }
    }

    fn rows(&self) -> [Row; 2] {
        let added = |most| Comparison::Added { most };
        let ratio = |least| Comparison::Ratio { least };
        match self.cell.traffic {
            Traffic::Saturating | Traffic::NewPrompts => [
                self.row("requests/s", rate, ratio(Some(aims::LEAST_RATE))),
                self.row("processor µs of a request", cpu, added(aims::most_cpu(self.cell))),
            ],
            Traffic::Streamed => [
                self.row("answers/s", rate, ratio(Some(aims::LEAST_STREAMED))),
                self.row("processor µs of an answer", cpu, added(None)),
            ],
            Traffic::Paced => [
                self.row("processor µs of an answer", cpu, ratio(None)),
                self.row("p50 µs", |turn| micros(turn.figures.p50), added(None)),
            ],
            Traffic::Steady => [
                self.row("p50 µs", |turn| micros(turn.figures.p50), added(Some(aims::MOST_P50))),
                self.row("p99 µs", |turn| micros(turn.figures.p99), added(None)),
            ],
        }
    }

    /// A line for the progress of a run.
    pub(super) fn summary(&self, kinds: &[ProxyKind]) -> String {
        let [first, second] = self.rows();
        let compared = |row: &Row| {
            let compared = kinds.iter().skip(1).zip(&row.compared);
            let sign = row.comparison.sign();
            let compared = compared.map(|(kind, compared)| format!("{kind} {sign} {compared}"));
            format!("{}: {}", row.what, compared.collect::<Vec<_>>().join(", "))
        };
        format!("{}\n    {}", compared(&first), compared(&second))
    }
}

fn rate(turn: &Turn) -> f64 {
    turn.figures.rate()
}

fn cpu(turn: &Turn) -> f64 {
    micros(turn.cpu)
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

impl Memory {
    fn row(&self) -> Row {
        let mib: Vec<f64> = self.bytes.iter().map(|bytes| *bytes as f64 / MIB).collect();
        let is_aim = self.workers == aims::MEMORY_WORKERS && self.endpoints <= aims::MEMORY_ENDPOINTS;
        let comparison = Comparison::Added { most: is_aim.then_some(aims::MOST_MEMORY) };
        let compared = mib.iter().skip(1).map(|own| Compared::of(vec![comparison.of(*own, mib[0])]));
        let plural = if self.workers == 1 { "" } else { "s" };
        Row {
            what: format!(
                "{} endpoints, {} worker{plural}: Envoy's private memory, MiB",
                self.endpoints, self.workers
            ),
            compared: compared.collect(),
            figures: mib.into_iter().map(rounded).collect(),
            comparison,
        }
    }
}

impl CostTable<'_> {
    /// Added processor time at the most workers of a cell, divided by that at one worker.
    fn growth(&self) -> impl Iterator<Item = (Cell, Vec<f64>)> {
        let costs = self.0;
        let alone = costs.cells.iter().filter(|turns| {
            turns.cell.workers == 1 && matches!(turns.cell.traffic, Traffic::Saturating | Traffic::NewPrompts)
        });
        alone.filter_map(|alone| {
            let others = costs.cells.iter().filter(|turns| turns.cell.differs_only_in_workers(alone.cell));
            let most = others.max_by_key(|turns| turns.cell.workers).filter(|most| most.cell.workers > 1)?;
            let added = |turns: &CellTurns| {
                turns.compared(cpu, Comparison::Added { most: None }).into_iter().map(|added| added.median)
            };
            Some((most.cell, added(most).zip(added(alone)).map(|(most, one)| most / one).collect()))
        })
    }

    /// The position of the native module among the compared kinds, if aims apply: it is next to the bare
    /// proxy.
    fn native(&self) -> Option<usize> {
        let kinds = &self.0.kinds;
        let is_beside_bare = kinds.first() == Some(&ProxyKind::Bare);
        kinds.iter().skip(1).position(ProxyKind::is_native).filter(|_| is_beside_bare)
    }

    fn cells(&self, row: Row) -> Vec<String> {
        let sign = row.comparison.sign();
        let native = self.native().map(|at| row.compared[at].median);
        let aim = row.comparison.aim(native);
        let compared = row.compared.iter().map(|compared| format!("{sign} {compared}"));
        [row.what].into_iter().chain(row.figures).chain(compared).chain(aim).collect()
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = *self;
        f.write_str(&rounded(median))?;
        if least < most { write!(f, " ({} to {})", rounded(least), rounded(most)) } else { Ok(()) }
    }
}

impl fmt::Display for CostTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = self.0;
        let kinds = || costs.kinds.iter().map(ToString::to_string);
        let first = kinds().next().unwrap_or_default();
        let head: Vec<String> = std::iter::once(String::new())
            .chain(kinds())
            .chain(kinds().skip(1).map(|kind| format!("{kind} beside {first}: median (range)")))
            .chain(["aim for native".to_owned(), String::new()])
            .collect();
        let rows = costs.cells.iter().flat_map(CellTurns::rows).chain(costs.memory.iter().map(Memory::row));
        let mut rows: Vec<Vec<String>> = rows.map(|row| self.cells(row)).collect();
        for (cell, growth) in self.growth() {
            let native = self.native().map(|at| growth[at]);
            let [aim, is_met] = native.map_or_else(Default::default, |native| {
                [format!("≤ × {}", aims::MOST_GROWTH), met(native <= aims::MOST_GROWTH).to_owned()]
            });
            let what = format!("{cell}: added processor time beside that with 1 worker");
            let figures = costs.kinds.iter().map(|_| String::new());
            let growth = growth.iter().map(|growth| format!("× {}", rounded(*growth)));
            rows.push([what].into_iter().chain(figures).chain(growth).chain([aim, is_met]).collect());
        }
        table(f, &head, rows)?;
        let Costs { requests, failed, abstained, .. } = costs;
        writeln!(f, "Of {requests} requests {failed} failed; pickers left {abstained} to Envoy.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::wrk::Figures;

    /// A turn of a second with this rate and processor time.
    fn turn(requests: u64, micros: u64) -> Turn {
        let figures = Figures {
            requests,
            failed: 0,
            took: Duration::from_secs(1),
            p50: Duration::ZERO,
            p99: Duration::ZERO,
        };
        Turn { figures, cpu: Duration::from_micros(micros) }
    }

    fn costs(native: [[u64; 2]; 2]) -> Costs {
        let turns = |workers, added: u64| {
            let cell = Cell { traffic: Traffic::Saturating, bytes: 2_048, endpoints: 10, workers };
            let round = |base: u64| vec![turn(1_000, base), turn(900, base + added)];
            CellTurns { cell, rounds: vec![round(40), round(50), round(60)] }
        };
        let [[one, added], [many, more]] = native;
        Costs {
            kinds: vec![ProxyKind::Bare, "native".parse().unwrap()],
            cells: vec![turns(u32::try_from(one).unwrap(), added), turns(u32::try_from(many).unwrap(), more)],
            memory: vec![Memory { endpoints: 100, workers: 8, bytes: vec![10 << 20, 25 << 20] }],
            failed: 0,
            requests: 3,
            abstained: 0,
        }
    }

    #[test]
    fn differences_are_paired_and_aims_are_those_of_the_native_module() {
        let text = CostTable(&costs([[1, 8], [8, 12]])).to_string();
        let row = |what: &str| text.lines().find(|line| line.contains(what)).unwrap().to_owned();
        assert!(row("1 worker: processor").ends_with("| 50.0 | 58.0 | + 8.00 | ≤ + 8 | met |"), "{text}");
        let met = "| 1000 | 900 | × 0.900 | ≥ × 0.9 | met |";
        assert!(row("1 worker: requests/s").ends_with(met), "{text}");
        assert!(row("8 workers: added").ends_with("|  |  | × 1.50 | ≤ × 1.3 | **missed** |"), "{text}");
        assert!(row("MiB").ends_with("| 10.0 | 25.0 | + 15.0 | ≤ + 12 | **missed** |"), "{text}");
    }
}
