//! Compares our picker with the EPP, decision by decision, in a real Envoy.

use crate::epp::{VERSION, binary};
use crate::parity::case::{Answer, Case};
use crate::parity::generator::Generator;
use crate::parity::live_stack::{LiveStack, Picker};
use crate::parity::ours::{Expected, Prediction};
use crate::parity::recording::{Recording, Run};
use crate::parity::setup::{SETUPS, Setup};
use crate::parity::verdict::{Verdict, VerdictCounts};
use anyhow::{Context, Result, ensure};
use clap::Args;
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
    /// Write the EPP's answers into bench/parity/recorded.
    #[arg(long)]
    record: bool,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode> {
    let epp = binary(&flags.epp)?;
    let setups = match &flags.setup {
        Some(name) => std::slice::from_ref(Setup::named(name)?),
        None => SETUPS,
    };
    println!("seed {}, {} filter, EPP {}", flags.seed, Filter::chosen()?, epp.display());
    let mut all = VerdictCounts::default();
    for setup in setups {
        let begin = Instant::now();
        let mut stack =
            LiveStack::start(setup, &epp).await.with_context(|| format!("setup {}", setup.name))?;
        let run =
            compare(setup, flags.seed, &mut stack).await.with_context(|| format!("setup {}", setup.name));
        let (recording, counts) = run?;
        println!("{}: {counts}, {:.1} s", setup.name, begin.elapsed().as_secs_f64());
        if flags.record {
            recording.write(setup)?;
        }
        all += counts;
    }
    println!("all: {all}");
    ensure!(all.disagreements() == 0, "{} disagreements", all.disagreements());
    Ok(ExitCode::SUCCESS)
}

async fn compare(setup: &Setup, seed: u64, stack: &mut LiveStack) -> Result<(Recording, VerdictCounts)> {
    let mut generator = Generator::new(setup, seed)?;
    let mut counts = VerdictCounts::default();
    let run = Run { epp: VERSION.to_owned(), seed };
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
            println!("{}", describe(setup, number, &case, &prediction, &of_filter, &of_epp));
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

fn describe(
    setup: &Setup,
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
        "{} case {number}: {}\n  servers{}\n  our rules  {expected}: {}\n  our filter {of_filter}\n  the EPP    {of_epp}",
        setup.name,
        case.request,
        servers.concat(),
        prediction.explanation,
    )
}
