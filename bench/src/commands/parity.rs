//! Compares our picker with the EPP, decision by decision, in a real Envoy.

use crate::epp::{binary, recorded_version};
use crate::parity::case::{Answer, Case};
use crate::parity::generator::Generator;
use crate::parity::live_stack::{LiveStack, Picker};
use crate::parity::ours::{Expected, Prediction};
use crate::parity::recording::{Recording, Run};
use crate::parity::setup::{Comparison, SETUPS, Setup};
use crate::parity::verdict::{Verdict, VerdictCounts};
use anyhow::{Context, Result, ensure};
use clap::Args;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_harness::Filter;
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
/// Cases of a drawn setup, and of one state of its servers, where many configurations are drawn: to start the
/// programs takes seconds, and to read new metrics a tenth of one.
const MANY: Amount = Amount { cases: 400, cases_of_a_state: 25 };

/// The cases of one start of all programs.
#[derive(Clone, Copy, Debug)]
struct Amount {
    cases: usize,
    cases_of_a_state: usize,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode> {
    let epp = binary(&flags.epp)?;
    let setups = match &flags.setup {
        Some(name) => std::slice::from_ref(Setup::named(name)?),
        None => SETUPS,
    };
    let (rules, filter) = (flags.epp_rules, Filter::chosen()?);
    println!("seed {}, {filter} filter, EPP {} as {}", flags.seed, epp.display(), recorded_version(rules));
    let began = Instant::now();
    let mut all = VerdictCounts::default();
    for setup in setups.iter().filter(|setup| setup.is_for(filter)) {
        let cases_of_a_state = if setup.shape.is_some() { 5 } else { 1 };
        let amount = Amount { cases: setup.cases, cases_of_a_state };
        let seeds = if flags.record && setup.shape.is_some() { RECORDED } else { 1 };
        let mut recordings = Vec::new();
        for seed in flags.seed..flags.seed + seeds {
            let (recording, counts) = start(setup, rules, seed, &epp, amount).await?;
            recordings.push(recording);
            all += counts;
        }
        if flags.record {
            Recording::write_all(&recordings, setup, rules)?;
        }
    }
    let drawn = || setups.iter().filter(|setup| setup.shape.is_some() && setup.is_for(filter));
    let mut seeds = flags.seed + 1..;
    while flags.cases.is_some_and(|cases| all.cases() < cases) && drawn().next().is_some() {
        let seed = seeds.next().context("a seed")?;
        for setup in drawn() {
            all += start(setup, rules, seed, &epp, MANY).await?.1;
        }
    }
    println!("all: {all}, {:.0} s", began.elapsed().as_secs_f64());
    ensure!(all.disagreements() == 0, "{} disagreements", all.disagreements());
    Ok(ExitCode::SUCCESS)
}

/// Starts all programs for one setup, and compares.
async fn start(
    setup: &'static Setup,
    rules: EppRules,
    seed: u64,
    epp: &Path,
    amount: Amount,
) -> Result<(Recording, VerdictCounts)> {
    let begin = Instant::now();
    let place = || format!("setup {} with the seed {seed}", setup.name);
    let comparison = Comparison::new(setup, rules, seed)?;
    let mut stack = LiveStack::start(&comparison, epp).await.with_context(place)?;
    let run = compare(&comparison, seed, amount, &mut stack).await;
    if let Some(config) = comparison.drawn_config()
        && run.as_ref().map_or(true, |(_, counts)| counts.disagreements() > 0)
    {
        println!("{}: {config}", setup.name);
    }
    let (recording, counts) = run.with_context(place)?;
    println!("{} {seed}: {counts}, {:.1} s", setup.name, begin.elapsed().as_secs_f64());
    Ok((recording, counts))
}

async fn compare(
    comparison: &Comparison,
    seed: u64,
    amount: Amount,
    stack: &mut LiveStack,
) -> Result<(Recording, VerdictCounts)> {
    let mut generator = Generator::new(comparison, seed, amount.cases_of_a_state)?;
    let mut counts = VerdictCounts::default();
    let epp = recorded_version(comparison.rules).to_owned();
    let run = Run { epp, seed, config: comparison.drawn_config() };
    let mut recording = Recording { run, cases: Vec::new() };
    for number in 0..amount.cases {
        let (case, prediction) = generator.next_case()?;
        let held = stack.set(&case).await?;
        let (of_epp, epp_body) = stack.send(Picker::Epp, &case.request).await?;
        let (of_filter, filter_body) = stack.send(Picker::Filter, &case.request).await?;
        drop(held);
        let verdict = Verdict::on(comparison, &case, &prediction.expected, &of_epp);
        let follows = prediction.expected.allows(&of_filter);
        if verdict == Verdict::Disagree || !follows {
            println!("{}", describe(comparison, number, &case, &prediction, &of_filter, &of_epp));
        }
        counts.count(verdict, follows);
        if case.request.body.is_some() {
            let unchanged = |body: &Option<String>| body.as_ref().is_none_or(|_| *body == case.request.body);
            ensure!(unchanged(&filter_body), "case {number}: our filter changed the body to {filter_body:?}");
            counts.count_body(unchanged(&epp_body));
        }
        recording.cases.push((case, of_epp));
    }
    Ok((recording, counts))
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
