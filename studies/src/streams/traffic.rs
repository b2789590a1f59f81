//! The cost of many chunks in a second, and of prompts of 100 000 tokens.

use crate::epp::cost::{self, CostPlan, CostSample, CostTurns};
use crate::epp::cost_cells::{CostCell, KB, Traffic};
use crate::epp::cost_report::CostTables;
use crate::epp::rules::Rules;
use crate::epp::variant::{Setting, USUAL_INTERVAL, Variant};
use anyhow::Result;
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::{Progress, median, rounded};
use endpoint_picker_bench::upstreams::Upstreams;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::run_dir::RunDir;
use std::fmt;
use std::path::Path;
use std::time::Duration;

const ENDPOINTS: usize = 10;
const CHUNKS_OF_RESPONSE: f64 = 1_000.0;
/// No chunk, for the processor time that each proxy takes at rest.
const AT_REST: CostCell = CostCell { endpoints: ENDPOINTS, traffic: Traffic::None, rate: None };
/// Chunks at the highest rate; 100 000 in a second, of which Envoy reads many at a time; and those of 16
/// responses with a chunk every 2 ms, which Envoy reads one by one.
const CHUNK_CELLS: [CostCell; 3] = [
    CostCell { endpoints: ENDPOINTS, traffic: Traffic::Streamed, rate: None },
    CostCell { endpoints: ENDPOINTS, traffic: Traffic::Streamed, rate: Some(100) },
    CostCell { endpoints: ENDPOINTS, traffic: Traffic::Paced, rate: None },
];
/// The first is the one with which the other is compared.
const CHUNK_VARIANTS: [Variant; 2] = [Variant::NoPicker, Variant::Filter(Filter::Native)];
/// Bounds of chunks in a second with the native module, and of Envoy's processor time for a chunk, divided by
/// those without.
const MIN_CHUNKS: f64 = 0.98;
const MAX_CPU: f64 = 1.02;

/// 100 000 tokens of four bytes.
const LONG_PROMPT: Traffic = Traffic::Chat(400 * KB);
const PROMPT_SATURATED: CostCell = CostCell { endpoints: ENDPOINTS, traffic: LONG_PROMPT, rate: None };
const PROMPT_STEADY: CostCell = CostCell { endpoints: ENDPOINTS, traffic: LONG_PROMPT, rate: Some(20) };
/// All conditions of long prompts.
pub(crate) const PROMPT_CELLS: &[&[CostCell]] = &[&[PROMPT_SATURATED, PROMPT_STEADY]];

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrafficPlan {
    /// Turns of each proxy with chunks; each round begins with another one.
    pub(crate) rounds: u32,
    /// How long such a turn lasts; whole seconds.
    pub(crate) turn: Duration,
    pub(crate) prompts: CostPlan,
}

/// The rounds of a condition, in each of which every one of [`CHUNK_VARIANTS`] had a turn.
type Rounds = Vec<[CostSample; 2]>;

/// The figures of both.
pub(crate) struct TrafficTables {
    at_rest: Rounds,
    chunks: Vec<(CostCell, Rounds)>,
    prompts: Vec<CostSample>,
}

impl TrafficPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turns = (1 + CHUNK_CELLS.len()) * CHUNK_VARIANTS.len();
        self.turn * self.rounds * u32::try_from(turns).unwrap_or(u32::MAX) + self.prompts.expected()
    }
}

/// Measures both.
pub(crate) async fn measure(plan: TrafficPlan, epp: &Path, progress: &Progress) -> Result<TrafficTables> {
    let (at_rest, chunks) = measure_chunks(plan, progress).await?;
    let prompts = cost::measure(plan.prompts, epp, progress).await?;
    Ok(TrafficTables { at_rest, chunks, prompts })
}

/// Both proxies run all the time, because an Envoy is as much faster or slower than another one as the aim
/// allows.
async fn measure_chunks(plan: TrafficPlan, progress: &Progress) -> Result<(Rounds, Vec<(CostCell, Rounds)>)> {
    let mut dir = RunDir::new()?;
    let upstreams = Upstreams::start(ENDPOINTS).await?;
    let setting = Setting {
        endpoints: upstreams.addresses(),
        workers: 1,
        rules: Rules::Parity("default"),
        interval: USUAL_INTERVAL,
        agent_flags: &[],
        epp: None,
    };
    let [bare, native] = CHUNK_VARIANTS;
    let proxies = [bare.start(setting).await?, native.start(setting).await?];
    let turns = |proxy: usize| CostTurns {
        running: &proxies[proxy],
        upstreams: &upstreams,
        folder: dir.path(),
        variant: CHUNK_VARIANTS[proxy],
    };
    let measure = async |cell: CostCell| {
        let mut rounds = Vec::new();
        for round in 0..plan.rounds {
            let mut samples = [None; 2];
            for proxy in in_turns(&[0, 1], round) {
                let sample = turns(proxy).turn(cell, plan.turn).await?;
                progress.print(&format!("round {}: {sample}", round + 1));
                samples[proxy] = Some(sample);
            }
            if let [Some(bare), Some(native)] = samples {
                rounds.push([bare, native]);
            }
        }
        anyhow::Ok(rounds)
    };
    let at_rest = measure(AT_REST).await?;
    let mut chunks = Vec::new();
    for cell in CHUNK_CELLS {
        chunks.push((cell, measure(cell).await?));
    }
    dir.settle();
    Ok((at_rest, chunks))
}

/// The median of the rounds' own ratios, native to bare.
fn ratio(rounds: &[[CostSample; 2]], figure: impl Fn(usize, &CostSample) -> f64) -> f64 {
    median(rounds.iter().map(|[bare, native]| figure(1, native) / figure(0, bare)).collect())
}

impl TrafficTables {
    /// Cores that Envoy takes at rest, bare and native.
    fn cores_at_rest(&self) -> [f64; 2] {
        let cores = |sample: &CostSample| sample.cpu.envoy.as_secs_f64() / sample.took.as_secs_f64();
        [0, 1].map(|variant| median(self.at_rest.iter().map(|round| cores(&round[variant])).collect()))
    }

    fn chunks_row(&self, (cell, rounds): &(CostCell, Rounds)) -> [String; 9] {
        let at_rest = self.cores_at_rest();
        let rate = |_: usize, sample: &CostSample| sample.per_second() * CHUNKS_OF_RESPONSE;
        let cpu = |variant: usize, sample: &CostSample| {
            let rest = at_rest.get(variant).copied().unwrap_or_default() * sample.took.as_secs_f64();
            let chunks = rate(variant, sample) * sample.took.as_secs_f64();
            (sample.cpu.envoy.as_secs_f64() - rest) * 1e6 / chunks
        };
        let of = |figure: &dyn Fn(usize, &CostSample) -> f64| {
            [0, 1].map(|variant| {
                rounded(median(rounds.iter().map(|round| figure(variant, &round[variant])).collect()))
            })
        };
        let ([bare, native], [bare_cpu, native_cpu]) = (of(&rate), of(&cpu));
        let (rates, cpus) = (ratio(rounds, rate), ratio(rounds, cpu));
        let is_saturated = cell.traffic == Traffic::Streamed && cell.rate.is_none();
        let aim = if is_saturated {
            format!("≥ {MIN_CHUNKS} of chunks/s: {}", met(rates >= MIN_CHUNKS))
        } else {
            format!("≤ {MAX_CPU} of processor time: {}", met(cpus <= MAX_CPU))
        };
        [
            cell.to_string(),
            bare,
            native,
            format!("{rates:.3}"),
            bare_cpu,
            native_cpu,
            format!("{cpus:.3}"),
            rounds.len().to_string(),
            aim,
        ]
    }

    fn write_prompts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = CostTables(&self.prompts);
        let rates = tables.of_all(PROMPT_SATURATED, CostSample::per_second);
        let cpu = tables.of_all(PROMPT_SATURATED, |sample| sample.cpu_of_request() / 1e3);
        let [p50, p99] = [|sample: &CostSample| sample.p50, |sample: &CostSample| sample.p99]
            .map(|time| tables.of_all(PROMPT_STEADY, |sample| time(sample).as_secs_f64() * 1e3));
        let failed = Variant::ALL.map(|variant| {
            let own = self.prompts.iter().filter(|sample| sample.variant == variant);
            own.map(|sample| sample.failed).sum::<u64>()
        });
        let rows = Variant::ALL.into_iter().enumerate().map(|(at, variant)| {
            [
                variant.to_string(),
                rounded(rates[at]),
                rounded(cpu[at]),
                rounded(cpu[at] - cpu[0]),
                rounded(p50[at]),
                rounded(p99[at]),
                failed[at].to_string(),
            ]
        });
        let head = [
            "",
            "maximum of requests/s",
            "processor ms of proxy and picker for a request",
            "more than without a picker",
            "p50 ms at 20 requests/s",
            "p99",
            "failed",
        ];
        table(f, &head, rows)
    }
}

impl fmt::Display for TrafficTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bare, native] = self.cores_at_rest().map(rounded);
        writeln!(
            f,
            "Chunks. Only Envoy's processor time counts, in which the module is, without that at rest: {bare} cores bare, {native} with the native module. Ratios are medians of the rounds' own.\n"
        )?;
        let head = [
            "",
            "bare: chunks/s",
            "native",
            "native / bare",
            "bare: processor µs of a chunk",
            "native",
            "native / bare",
            "rounds",
            "aim",
        ];
        table(f, &head, self.chunks.iter().map(|chunks| self.chunks_row(chunks)))?;
        writeln!(f, "Prompts of 100 000 tokens (400 KB):\n")?;
        self.write_prompts(f)
    }
}
