//! A short run of `make chaos`, always the same one.

use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::tools;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The faults are begun within 30 s; the last one may take half a minute to recover from, and Envoy some seconds to start.
const DEADLINE: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn no_servable_request_is_lost_whatever_breaks() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(tools::built("bench", "endpoint-picker-bench").unwrap());
    command.args([
        "chaos",
        "--seed",
        "4",
        "--seconds",
        "30",
        "--longest",
        "1",
        "--workers",
        "2",
        "--rate",
        "50",
    ]);
    let mut chaos = Process::start("chaos", command, &folder.path().join("output")).unwrap();
    let end = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = chaos.exit_status().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "chaos runs longer than {DEADLINE:?}:\n{}", chaos.output().unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(status.success(), "{}", chaos.output().unwrap());
}
