//! The agent as a process.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The agent with these flags and with pipes for its output.
pub(crate) fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command.args(flags).env_remove("RUST_LOG").kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts an agent with these flags and waits until it serves.
pub(crate) async fn start(flags: &[&str]) -> (Child, SocketAddr) {
    started(command(flags)).await
}

/// Starts the command and waits until it serves.
pub(crate) async fn started(mut command: Command) -> (Child, SocketAddr) {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}"));
    let address = address.parse().unwrap();
    (child, address)
}

/// Sends a signal to a process that the test started.
pub(crate) async fn signal(child: &Child, name: &str) {
    let id = child.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
}

/// Waits until the process ends; returns its exit status and its log.
pub(crate) async fn logs(child: Child) -> (std::process::ExitStatus, String) {
    let output = tokio::time::timeout(Duration::from_secs(10), child.wait_with_output()).await;
    let output = output.expect("it ends within seconds").unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

/// Runs the agent with flags that it refuses, and returns its message.
pub(crate) fn refusal(flags: &[&str]) -> String {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_metrics-agent"))
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert!(!child.wait().unwrap().success(), "{message}");
    message
}
