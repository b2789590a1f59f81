//! Figures of the packages' own benches.

use crate::report::OwnFigure;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::tools;
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
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
    let target = target_folder()?;
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

/// The groups of the native module's bench: a request behind callbacks that cost next to nothing.
const REQUEST: &str = "a chat of 2 KB, from its head to its end";
/// The rules of each group.
const RULES: [&str; 2] = ["expected latency", "the EPP's rules"];

/// Endpoints, and the most microseconds that the native module's own code may take for a request.
const REQUESTS: [(u32, f64); 4] = [(10, 4.0), (100, 4.0), (1_000, 15.0), (5_000, 60.0)];

/// The most microseconds that a decision among 100 endpoints may hold the native module's lock.
const MOST_LOCKED: f64 = 2.0;

/// The time of the native module's own code, and that of it with the lock.
pub(crate) fn native_module() -> Result<Vec<OwnFigure>> {
    cargo_bench("endpoint-picker-native", "request")?;
    let mut rows = Vec::new();
    for rules in RULES {
        let group = format!("{REQUEST}, {rules}");
        let folder = target_folder()?.join("criterion").join(group);
        for (endpoints, most) in REQUESTS {
            rows.push(OwnFigure {
                what: format!("native module's own code, {rules}, {endpoints} endpoints, 2 KB"),
                figure: median(&folder.join(format!("{endpoints} endpoints")))? / 1e3,
                unit: "µs",
                most: Some(most),
            });
        }
    }
    let output = cargo_bench("endpoint-picker-native", "shared")?;
    let first = output.lines().skip_while(|line| !line.starts_with("threads")).nth(1);
    let locked = first.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    rows.push(OwnFigure {
        what: "native module, 100 endpoints, 2 KB: a decision's time with the lock".to_owned(),
        figure: locked.with_context(|| format!("the bench of the lock gave no figure:\n{output}"))?,
        unit: "µs",
        most: Some(MOST_LOCKED),
    });
    Ok(rows)
}

/// Cargo's target folder.
fn target_folder() -> Result<PathBuf> {
    let own = env::current_exe()?;
    own.ancestors().nth(2).map(Path::to_owned).context("this program lies in a target directory")
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

/// The cost of the cached prefixes of 100 servers, in the agent and on the way to a proxy.
pub(crate) fn cached_prefixes() -> Result<Vec<OwnFigure>> {
    let output = cargo_bench("metrics-agent", "cached_prefixes")?;
    let mut lines = output.lines().skip_while(|line| !line.starts_with("servers"));
    let (head, figures) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let columns = head.split("  ").map(str::trim).filter(|column| !column.is_empty());
    let figures: Vec<_> = columns.zip(figures.split_whitespace()).collect();
    let row = |what: &str, column: &str, unit, most| -> Result<OwnFigure> {
        let figure =
            figures.iter().find(|(name, _)| *name == column).and_then(|(_, figure)| figure.parse().ok());
        let figure = figure.with_context(|| format!("the agent's bench gave no {column:?}:\n{output}"))?;
        let what = format!("cached prefixes, 100 servers with 5 000 new tokens/s each: {what}");
        Ok(OwnFigure { what, figure, unit, most: Some(most) })
    };
    Ok(vec![
        row("to a proxy", "MB/s to a proxy", "MB/s", 1.0)?,
        row("agent, events", "core", "core", 0.3)?,
        row("agent, for each proxy", "core for it", "core", 0.05)?,
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
