//! Predictions of `metrics-agent replay`, compared with measurements: each configuration is run and recorded
//! in front of llm-d-inference-sim, and each record is replayed with all configurations.

mod clients;
mod report;

use self::clients::Clients;
pub(crate) use self::report::ReplayTable;
use crate::epp::rules::Rules;
use crate::epp::variant::{Setting, USUAL_INTERVAL, Variant};
use crate::simulators::{Room, Simulators};
use anyhow::{Context, Result, ensure};
use endpoint_picker_bench::report::{Progress, load_average};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::{Filter, tools};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where the records, the configurations and the servers' logs are kept, relative to the repository's root.
pub(crate) const REPORTS: &str = "target/replay";
/// The folder of a record, in that of its run.
const RECORD: &str = "record";
const SERVERS: usize = 3;
const ROOM: Room = Room { requests: 8, blocks: 2048 };
/// Starting and ending a run, and a replay, take about this long.
const AROUND: Duration = Duration::from_secs(20);
/// The agent has written all requests within this time after the last response.
const RECORD_DEADLINE: Duration = Duration::from_secs(20);

/// A configuration by its name.
type Configuration = (&'static str, Rules);

/// The last one knows nothing of caches.
const CONFIGURATIONS: [Configuration; 4] = [
    ("expected-latency", Rules::Example("expected-latency")),
    ("epp", Rules::DEFAULT),
    ("lmetric", Rules::Example("lmetric")),
    ("queues", Rules::Text(include_str!("queues.yaml"))),
];

/// The runs to measure.
#[derive(Clone, Debug)]
pub(crate) struct ReplayPlan {
    /// The binary of llm-d-inference-sim.
    pub(crate) sim: PathBuf,
    /// How long clients send requests for each configuration.
    pub(crate) lasting: Duration,
    pub(crate) seed: u64,
}

/// A run of a configuration, and the replay of its record.
#[derive(Clone, Debug)]
struct ReplayedRun {
    name: &'static str,
    requests: usize,
    /// Milliseconds to the first token that a tenth of the requests exceeded: as measured by the proxy, as
    /// replayed with the recorded picks, and as predicted for each configuration.
    measured: f64,
    repeated: f64,
    predicted: [f64; CONFIGURATIONS.len()],
    /// Whether the replay says that it can be trusted.
    is_trusted: bool,
}

impl ReplayPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        (self.lasting + AROUND) * u32::try_from(CONFIGURATIONS.len()).unwrap_or(u32::MAX)
    }
}

/// Measures all configurations, one at a time.
pub(crate) async fn measure(plan: &ReplayPlan, progress: &Progress) -> Result<ReplayTable> {
    let folder = tools::root().join(REPORTS);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for (name, rules) in CONFIGURATIONS {
        rules.read()?.write_config(&rules_file(&folder, name))?;
    }
    let mut runs = Vec::new();
    for (name, rules) in CONFIGURATIONS {
        let of_run = folder.join(name);
        fs::create_dir_all(of_run.join(RECORD))?;
        let requests = plan.record(rules, &of_run).await.with_context(|| name.to_owned())?;
        let run = replay(name, requests, &folder)?;
        progress.print(&format!("{run}; load average {}", load_average()?));
        runs.push(run);
    }
    Ok(ReplayTable(runs))
}

fn rules_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.yaml"))
}

impl ReplayPlan {
    /// Records a run into this folder. Returns how many requests were served.
    async fn record(&self, rules: Rules, folder: &Path) -> Result<usize> {
        let servers = Simulators::<SERVERS>::start(&self.sim, ROOM, folder).await?;
        let record_folder = folder.join(RECORD);
        let record = record_folder.to_str().context("the folder's name is not UTF-8")?;
        let setting = Setting {
            endpoints: servers.addresses(),
            workers: 1,
            rules,
            interval: USUAL_INTERVAL,
            agent_flags: &["--record", record],
            epp: None,
        };
        let mut running = Variant::Filter(Filter::Native).start(setting).await?;
        let served = Clients::new(running.listener(), self.seed, self.lasting)?.run().await?;
        running.check_running()?;
        let is_whole = within(RECORD_DEADLINE, async || {
            let recorded = record_of(&record_folder)?.1;
            // Those that waited for the picker are recorded too.
            ensure!(recorded >= served, "the record has {recorded} of {served} requests");
            anyhow::Ok(())
        });
        is_whole.await.map_err(anyhow::Error::msg)?;
        Ok(served)
    }
}

/// The files of a record, and its requests.
fn record_of(folder: &Path) -> Result<(Vec<PathBuf>, usize)> {
    let files = fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let mut files: Vec<_> =
        files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "jsonl")).collect();
    files.sort();
    let texts = files.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let lines = texts.iter().flat_map(|text| text.lines());
    let requests = lines.filter(|line| !line.starts_with(r#"{"record""#)).count();
    Ok((files, requests))
}

/// Replays the record of a run with all configurations.
fn replay(name: &'static str, requests: usize, folder: &Path) -> Result<ReplayedRun> {
    let mut command = Command::new(tools::metrics_agent()?);
    command.arg("replay").args(record_of(&folder.join(name).join(RECORD))?.0).arg("--json");
    let files = CONFIGURATIONS.map(|(name, _)| rules_file(folder, name));
    for file in &files {
        command.arg("--rules").arg(file);
    }
    let output = command.output().context("metrics-agent replay")?;
    ensure!(output.status.success(), "metrics-agent replay: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).context("the report of a replay")?;
    let p90 = |row: &str| {
        let mut rows = report["rows"].as_array().into_iter().flatten();
        let found = rows.find(|it| it["name"] == row).and_then(|it| it["p90_ms"]["median"].as_f64());
        found.with_context(|| format!("the replay has no p90 of {row}"))
    };
    let mut predicted = [0.0; CONFIGURATIONS.len()];
    for (predicted, file) in predicted.iter_mut().zip(&files) {
        *predicted = p90(&file.display().to_string())?;
    }
    Ok(ReplayedRun {
        name,
        requests,
        measured: p90("recorded")?,
        repeated: p90("recorded, replayed")?,
        predicted,
        is_trusted: report["is_trusted"] == true,
    })
}
