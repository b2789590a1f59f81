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
use std::path::PathBuf;
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

pub(super) async fn run(flags: &Flags) -> Result<ExitCode> {
    let epp = binary(&flags.epp)?;
    let setups = match &flags.setup {
        Some(name) => std::slice::from_ref(Setup::named(name)?),
        None => SETUPS,
    };
    let rules = flags.epp_rules;
    let version = recorded_version(rules);
    println!("seed {}, {} filter, EPP {} as {version}", flags.seed, Filter::chosen()?, epp.display());
    let mut all = VerdictCounts::default();
    for setup in setups.iter().filter(|setup| setup.compares(rules)) {
        let begin = Instant::now();
        let comparison = Comparison::new(setup, rules, flags.seed)?;
        if let Some(config) = comparison.drawn_config() {
            println!("{}: {config}", setup.name);
        }
        let mut stack =
            LiveStack::start(&comparison, &epp).await.with_context(|| format!("setup {}", setup.name))?;
        let run = compare(&comparison, flags.seed, &mut stack).await;
        let (recording, counts) = run.with_context(|| format!("setup {}", setup.name))?;
        println!("{}: {counts}, {:.1} s", setup.name, begin.elapsed().as_secs_f64());
        if flags.record {
            recording.write(setup, rules)?;
        }
        all += counts;
    }
    println!("all: {all}");
    ensure!(all.disagreements() == 0, "{} disagreements", all.disagreements());
    Ok(ExitCode::SUCCESS)
}

async fn compare(
    comparison: &Comparison,
    seed: u64,
    stack: &mut LiveStack,
) -> Result<(Recording, VerdictCounts)> {
    let setup = comparison.setup;
    let mut generator = Generator::new(comparison, seed)?;
    let mut counts = VerdictCounts::default();
    let epp = recorded_version(comparison.rules).to_owned();
    let run = Run { epp, seed, config: comparison.drawn_config() };
    let mut recording = Recording { run, cases: Vec::new() };
    for number in 0..setup.cases {
        let (case, prediction) = generator.next_case()?;
        let held = stack.set(&case).await?;
        let (of_epp, epp_body) = stack.send(Picker::Epp, &case.request).await?;
        let (of_filter, filter_body) = stack.send(Picker::Filter, &case.request).await?;
        drop(held);
        let verdict = Verdict::on(&case, &prediction.expected, &of_epp);
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
