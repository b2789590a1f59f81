//! Figures of the packages' own benches.

use crate::report::OwnFigure;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::tools;
use serde_json::Value;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The groups of core's bench, and the most microseconds that a decision may take in each.
const GROUPS: [(&str, f64); 3] = [
    ("100 endpoints, 2 KB", 5.0),
    ("1000 endpoints, 2 KB", 40.0),
    ("optimized baseline, 100 endpoints, 8 KB", 10.0),
];

/// The measurements of each group, and whether each is of a decision alone.
const MEASURED: [(&str, bool); 4] =
    [("known prompt", true), ("half known prompt", true), ("cold prompt", true), ("body to state", false)];

/// The time of a decision in core, compiled for this machine.
pub(crate) fn decisions() -> Result<Vec<OwnFigure>> {
    cargo_bench("endpoint-picker-engine", "decide")?;
    let own = env::current_exe()?;
    let target = own.ancestors().nth(2).context("this program lies in a target directory")?;
    let mut rows = Vec::new();
    for (group, most) in GROUPS {
        for (name, is_decision) in MEASURED {
            let nanoseconds = median(&target.join("criterion").join(group).join(name))?;
            rows.push(OwnFigure {
                what: format!("core, {group}, {name}"),
                figure: nanoseconds / 1e3,
                unit: "µs",
                most: is_decision.then_some(most),
            });
        }
    }
    Ok(rows)
}

/// Nanoseconds of one iteration, as criterion has them in `folder`.
fn median(folder: &Path) -> Result<f64> {
    let file = folder.join("new/estimates.json");
    let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    let estimates: Value = serde_json::from_slice(&text)?;
    estimates["median"]["point_estimate"].as_f64().context("criterion's estimates have no median")
}

/// The cost of the agent with 100 endpoints.
pub(crate) fn agent() -> Result<Vec<OwnFigure>> {
    let output = cargo_bench("metrics-agent", "agent_load")?;
    let mut lines = output.lines().skip_while(|line| !line.contains("scrapes/s"));
    let (head, figures) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let columns = head.split("  ").map(str::trim).filter(|column| !column.is_empty());
    let figures = columns.zip(figures.split_whitespace());
    let figure = |name: &str| {
        let found =
            figures.clone().find(|(column, _)| *column == name).and_then(|(_, figure)| figure.parse().ok());
        found.with_context(|| format!("the agent's bench gave no {name:?}:\n{output}"))
    };
    let row =
        |what: &str, figure, unit, most| OwnFigure { what: what.to_owned(), figure, unit, most: Some(most) };
    Ok(vec![
        row("agent, 100 endpoints at 50 ms, 60 KB", figure("core")?, "core", 0.3),
        row("agent, peak memory", figure("peak MiB")?, "MiB", 60.0),
    ])
}

/// Runs a bench and returns its output; the compiler's progress goes to the terminal.
fn cargo_bench(package: &str, bench: &str) -> Result<String> {
    eprintln!("measuring {package} ({bench})");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["bench", "--quiet", "--package", package, "--bench", bench])
        .current_dir(tools::root())
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "cargo bench -p {package} --bench {bench} failed:\n{text}");
    Ok(text)
}
