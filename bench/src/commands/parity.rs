//! Compares our picker with the EPP, decision by decision, in a real Envoy.

use crate::epp::{binary, recorded_version};
use crate::parity::case::{Answer, Case};
use crate::parity::generator::{Drawn, Generator};
use crate::parity::live_stack::{LiveStack, Picker, ProcessorTime};
use crate::parity::ours::{Expected, Prediction};
use crate::parity::recording::{Recording, Run};
use crate::parity::setup::{Comparison, SETUPS, Setup};
use crate::parity::verdict::{Verdict, VerdictCounts};
use anyhow::{Context, Result, ensure};
use clap::Args;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::program::process_tree::cpu_time;
use futures_util::stream::{self, StreamExt};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Compares our picker with the EPP (llm-d-router's epp).
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The EPP's binary, a path or a name on PATH.
    #[arg(long, env = "EPP", default_value = "epp")]
    epp: PathBuf,
    /// Seed of the cases.
    #[arg(long, default_value_t = 20_260_817)]
    seed: u64,
    /// Only this setup.
    #[arg(long)]
    setup: Option<String>,
    /// Number of cases, for which configurations are drawn with the seeds from `seed` on.
    #[arg(long, conflicts_with = "record")]
    cases: Option<usize>,
    /// Number of setups that run at a time: while some wait for the pickers to read new metrics, others
    /// compare.
    #[arg(long, default_value = "4")]
    at_once: NonZeroUsize,
    /// Write the EPP's responses into bench/parity/recorded.
    #[arg(long)]
    record: bool,
    /// The version of the EPP, by its rules.
    #[arg(long, default_value = "v0.10", value_parser = rules)]
    epp_rules: EppRules,
}

fn rules(text: &str) -> Result<EppRules, String> {
    [EppRules::V010, EppRules::Ebab68792]
        .into_iter()
        .find(|rules| rules.as_str() == text)
        .ok_or_else(|| "allowed: v0.10, ebab68792".to_owned())
}

/// Configurations of each drawn setup that are recorded.
const RECORDED: u64 = 2;
/// Cases of one start of a drawn setup, where many are compared: to start the programs takes seconds.
const CASES_OF_A_START: usize = 400;
/// Seeds among which one draws a configuration of ranks: the EPP shows no scores there, so only its choice is
/// compared.
const RANKS_AMONG_SEEDS: u64 = 4;
/// Cases of one state of the servers, where many are compared: until both pickers have read another one takes
/// up to a second, and scrapes meanwhile cost more than cases.
const CASES_OF_A_STATE: usize = 25;

/// One start of all programs, and its cases.
#[derive(Clone, Copy, Debug)]
struct Start {
    setup: &'static Setup,
    seed: u64,
    cases: usize,
    cases_of_a_state: usize,
}

/// The result of one start.
#[derive(Debug)]
struct Outcome {
    /// Without cases unless they are recorded.
    recording: Recording,
    counts: VerdictCounts,
    processor_time: ProcessorTime,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode> {
    let epp = binary(&flags.epp)?;
    let setups = match &flags.setup {
        Some(name) => std::slice::from_ref(Setup::named(name)?),
        None => SETUPS,
    };
    let (rules, filter) = (flags.epp_rules, Filter::chosen()?);
    println!("seed {}, {filter} filter, EPP {} as {}", flags.seed, epp.display(), recorded_version(rules));
    let setups: Vec<&'static Setup> = setups.iter().filter(|setup| setup.is_for(filter)).collect();
    let starts = match flags.cases {
        None => setups.iter().flat_map(|setup| Start::few(setup, flags)).collect(),
        Some(cases) => Start::many(&setups, flags.seed, cases),
    };
    let began = Instant::now();
    let runs = stream::iter(&starts).map(|start| start.run(rules, &epp, flags.record));
    let runs: Vec<_> = runs.buffered(flags.at_once.get()).collect().await;

    let (mut all, mut failed) = (VerdictCounts::default(), 0);
    let mut processor_time = ProcessorTime::default();
    let mut recordings: Vec<(&'static Setup, Recording)> = Vec::new();
    for (start, run) in starts.iter().zip(runs) {
        match run {
            Ok(outcome) => {
                recordings.push((start.setup, outcome.recording));
                all += outcome.counts;
                processor_time += outcome.processor_time;
            }
            Err(_) => failed += 1,
        }
    }
    let own = cpu_time(std::process::id())?;
    let of_a_case = (processor_time.all() + own).as_secs_f64() / all.cases().max(1) as f64;
    println!("all of the {filter} filter and {}: {all}", recorded_version(rules));
    println!(
        "{:.0} s; processor time {of_a_case:.3} s a case: this program {:.0} s, {processor_time}",
        began.elapsed().as_secs_f64(),
        own.as_secs_f64()
    );
    ensure!(failed == 0, "{failed} of {} starts failed, for the reasons above", starts.len());
    if flags.record {
        for setup in setups {
            let of_setup = recordings.iter().filter(|(of, _)| of.name == setup.name);
            Recording::write_all(of_setup.map(|(_, recording)| recording), setup, rules)?;
        }
    }
    ensure!(all.disagreements() == 0, "{} disagreements", all.disagreements());
    Ok(ExitCode::SUCCESS)
}

impl Start {
    /// The starts of a setup with the cases of its recording.
    fn few(setup: &'static Setup, flags: &Flags) -> impl Iterator<Item = Self> {
        let is_drawn = setup.shape.is_some();
        let cases_of_a_state = if is_drawn { 5 } else { 1 };
        let seeds = if flags.record && is_drawn { RECORDED } else { 1 };
        let of_seed = move |seed| Self { setup, seed, cases: setup.cases, cases_of_a_state };
        (flags.seed..flags.seed + seeds).map(of_seed)
    }

    /// The starts for this many cases: each setup once, then drawn configurations with one seed after
    /// another.
    fn many(setups: &[&'static Setup], seed: u64, cases: usize) -> Vec<Self> {
        let of_seed = |setup: &'static Setup, seed| {
            let cases = if setup.shape.is_some() { CASES_OF_A_START } else { setup.cases };
            Self { setup, seed, cases, cases_of_a_state: CASES_OF_A_STATE }
        };
        let mut starts: Vec<Self> = setups.iter().map(|setup| of_seed(setup, seed)).collect();
        let drawn: Vec<_> = setups.iter().filter(|setup| setup.shape.is_some()).collect();
        if drawn.is_empty() {
            return starts;
        }
        let mut all: usize = starts.iter().map(|start| start.cases).sum();
        let has_turn =
            |setup: &Setup, seed: u64| !setup.has_ranks() || seed.is_multiple_of(RANKS_AMONG_SEEDS);
        let of_turn = |seed| {
            drawn.iter().filter(move |setup| has_turn(setup, seed)).map(move |setup| of_seed(setup, seed))
        };
        for start in (seed + 1..).flat_map(of_turn) {
            if all >= cases {
                break;
            }
            all += start.cases;
            starts.push(start);
        }
        starts
    }

    /// Starts all programs, compares, and prints the result.
    async fn run(&self, rules: EppRules, epp: &Path, record: bool) -> Result<Outcome> {
        let began = Instant::now();
        let outcome = self.compare(rules, epp, record).await;
        let Self { setup, seed, .. } = self;
        match &outcome {
            Ok(Outcome { counts, .. }) => {
                println!("{} {seed}: {counts}, {:.1} s", setup.name, began.elapsed().as_secs_f64());
            }
            Err(reason) => println!("{} {seed} failed: {reason:#}", setup.name),
        }
        outcome
    }

    async fn compare(&self, rules: EppRules, epp: &Path, record: bool) -> Result<Outcome> {
        let comparison = Comparison::new(self.setup, rules, self.seed)?;
        let mut stack = LiveStack::start(&comparison, epp).await?;
        let compared = self.compare_with(&comparison, &mut stack, record).await;
        if let Some(config) = comparison.drawn_config()
            && compared.as_ref().map_or(true, |(_, counts)| counts.disagreements() > 0)
        {
            println!("{} {}: {config}", self.setup.name, self.seed);
        }
        let (recording, counts) = compared?;
        Ok(Outcome { recording, counts, processor_time: stack.processor_time()? })
    }

    async fn compare_with(
        &self,
        comparison: &Comparison,
        stack: &mut LiveStack,
        record: bool,
    ) -> Result<(Recording, VerdictCounts)> {
        let mut generator = Generator::new(comparison, self.seed, self.cases_of_a_state)?;
        let mut counts = VerdictCounts::default();
        let epp = recorded_version(comparison.rules).to_owned();
        let run = Run { epp, seed: self.seed, config: comparison.drawn_config() };
        let mut recording = Recording { run, cases: Vec::new() };
        for number in 0..self.cases {
            let Drawn { case, of_epp: prediction, of_filter: own } = generator.next_case()?;
            let held = stack.set(&case).await?;
            let at = |picker| move || format!("case {number} through {picker:?}");
            let of_epp = stack.send(Picker::Epp, &case.request).await;
            let (of_epp, epp_body) = of_epp.with_context(at(Picker::Epp))?;
            let of_filter = stack.send(Picker::Filter, &case.request).await;
            let (of_filter, filter_body) = of_filter.with_context(at(Picker::Filter))?;
            drop(held);
            let verdict = Verdict::on(comparison, &case, &prediction.expected, &of_epp);
            let follows = own.expected.agrees(&of_filter);
            if verdict == Verdict::Disagree || !follows {
                let prediction = if follows { &prediction } else { &own };
                println!("{}", describe(comparison, number, &case, prediction, &of_filter, &of_epp));
            }
            counts.count(verdict, follows);
            if case.request.body.is_some() {
                let unchanged =
                    |body: &Option<String>| body.as_ref().is_none_or(|_| *body == case.request.body);
                ensure!(
                    unchanged(&filter_body),
                    "case {number}: our filter changed the body to {filter_body:?}"
                );
                counts.count_body(unchanged(&epp_body));
            }
            if record {
                recording.cases.push((case, of_epp));
            }
        }
        Ok((recording, counts))
    }
}

/// A difference that no page lists, with the plugins that may be the reason.
fn describe(
    comparison: &Comparison,
    number: usize,
    case: &Case,
    prediction: &Prediction,
    of_filter: &Answer,
    of_epp: &Answer,
) -> String {
    let servers: Vec<String> = case
        .servers
        .iter()
        .map(|state| format!("\n    {}", serde_json::to_string(state).unwrap_or_default()))
        .collect();
    let expected = match &prediction.expected {
        Expected::Served { best, .. } => format!("one of {best:?}"),
        Expected::Refused(refusal) => refusal.to_string(),
    };
    format!(
        "unlisted difference with {}: {} case {number}: {}\n  servers{}\n  our rules  {expected}: {}\n  our filter {of_filter}\n  the EPP    {of_epp}",
        comparison.plugins().join(", "),
        comparison.setup.name,
        case.request,
        servers.concat(),
        prediction.explanation,
    )
}
