//! Compares our picker with the EPP, decision by decision, in a real Envoy.

use crate::epp::{VERSION, binary};
use crate::parity::case::{Answer, Case};
use crate::parity::generator::Generator;
use crate::parity::ours::{Expected, Prediction};
use crate::parity::recording::{Recording, Run};
use crate::parity::setup::{SETUPS, Setup};
use crate::parity::stage::{Side, Stage};
use crate::parity::verdict::{Tally, Verdict};
use anyhow::{Context, Result, ensure};
use clap::Args;
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
    /// Keep the EPP's answers in bench/parity/recorded.
    #[arg(long)]
    record: bool,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode> {
    let epp = binary(&flags.epp)?;
    let setups = match &flags.setup {
        Some(name) => std::slice::from_ref(Setup::named(name)?),
        None => SETUPS,
    };
    println!("seed {}, EPP {}", flags.seed, epp.display());
    let mut all = Tally::default();
    for setup in setups {
        let begin = Instant::now();
        let mut stage = Stage::start(setup, &epp).await.with_context(|| format!("setup {}", setup.name))?;
        let run =
            compare(setup, flags.seed, &mut stage).await.with_context(|| format!("setup {}", setup.name));
        let (recording, tally) = run?;
        println!("{}: {tally}, {:.1} s", setup.name, begin.elapsed().as_secs_f64());
        if flags.record {
            recording.write(setup)?;
        }
        all += tally;
    }
    println!("all: {all}");
    ensure!(all.disagreements() == 0, "{} disagreements", all.disagreements());
    Ok(ExitCode::SUCCESS)
}

async fn compare(setup: &Setup, seed: u64, stage: &mut Stage) -> Result<(Recording, Tally)> {
    let mut generator = Generator::new(setup, seed)?;
    let mut tally = Tally::default();
    let run = Run { epp: VERSION.to_owned(), seed };
    let mut recording = Recording { run, cases: Vec::new() };
    for number in 0..setup.cases {
        let (case, prediction) = generator.next_case()?;
        let held = stage.set(&case).await?;
        let (theirs, their_body) = stage.send(Side::Theirs, &case.request).await?;
        let (ours, our_body) = stage.send(Side::Ours, &case.request).await?;
        drop(held);
        let verdict = Verdict::on(&case, &prediction.expected, &theirs);
        let follows = prediction.expected.allows(&ours);
        if verdict == Verdict::Disagree || !follows {
            println!("{}", told(setup, number, &case, &prediction, &ours, &theirs));
        }
        tally.count(verdict, follows);
        if case.request.body.is_some() {
            let unchanged = |body: &Option<String>| body.as_ref().is_none_or(|_| *body == case.request.body);
            ensure!(unchanged(&our_body), "case {number}: our filter changed the body to {our_body:?}");
            tally.count_body(unchanged(&their_body));
        }
        recording.cases.push((case, theirs));
    }
    Ok((recording, tally))
}

fn told(
    setup: &Setup,
    number: usize,
    case: &Case,
    prediction: &Prediction,
    ours: &Answer,
    theirs: &Answer,
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
        "{} case {number}: {}\n  servers{}\n  our rules  {expected}: {}\n  our filter {ours}\n  the EPP    {theirs}",
        setup.name,
        case.request,
        servers.concat(),
        prediction.explanation,
    )
}
