//! Short runs of `make chaos`.

use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::tools;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The faults are begun within 30 s; the last one may take half a minute to recover from, and Envoys some
/// seconds to start.
const DEADLINE: Duration = Duration::from_secs(180);

/// Runs chaos with these flags.
///
/// # Panics
///
/// When a servable request is lost, something does not recover, or the run takes too long.
pub async fn assert_survives(flags: &[&str]) {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(tools::built("bench", "endpoint-picker-bench").unwrap());
    command.args(["chaos", "--longest", "1", "--workers", "2", "--rate", "50"]).args(flags);
    let mut chaos = Process::start("chaos", command, &folder.path().join("output")).unwrap();
    let end = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = chaos.exit_status().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "chaos runs longer than {DEADLINE:?}:\n{}", chaos.output().unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let output = chaos.output().unwrap();
    assert!(status.success(), "{output}");
    eprintln!("{output}");
}
