//! kubectl and helm, as a user runs them.

use super::Cluster;
use crate::programs::program;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::tools::root;
use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// Longer than any use of them takes here.
const DEADLINE: Duration = Duration::from_secs(120);

impl Cluster {
    /// Runs kubectl and returns its standard output; an error has its standard error.
    pub async fn kubectl(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
        let mut command = Command::new(program("kubectl")?);
        command.args(arguments);
        self.run(command, "").await
    }

    /// Runs helm in the same way.
    pub async fn helm(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
        let mut command = Command::new(program("helm")?);
        command.args(arguments);
        self.run(command, "").await
    }

    /// Runs a script of the shell in the root of the repository, with kubectl and helm on its path.
    pub async fn shell(&self, script: &str) -> Result<String> {
        let kubectl = program("kubectl")?;
        let others = env::var_os("PATH").unwrap_or_default();
        let folders = kubectl.parent().map(Path::to_owned).into_iter().chain(env::split_paths(&others));
        let mut command = Command::new("sh");
        command.args(["-euc", script]).env("PATH", env::join_paths(folders)?).current_dir(root());
        self.run(command, "").await
    }

    /// Applies manifests to a namespace; those that name one keep theirs.
    pub async fn apply(&self, namespace: &str, manifests: &str) -> Result<String> {
        let mut command = Command::new(program("kubectl")?);
        command.args(["apply", "--namespace", namespace, "--filename", "-"]);
        self.run(command, manifests).await
    }

    async fn run(&self, mut command: Command, input: &str) -> Result<String> {
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.data.path()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = format!("{:?}", command.as_std());
        let finished = async {
            let mut child = command.spawn().with_context(|| format!("start {shown}"))?;
            let mut stdin = child.stdin.take().context("its standard input")?;
            let write = async {
                // A program that ends without reading its input prints the reason.
                let _ = stdin.write_all(input.as_bytes()).await;
                drop(stdin);
            };
            let (output, ()) = tokio::join!(child.wait_with_output(), write);
            anyhow::Ok(output?)
        };
        let output = timeout(DEADLINE, finished).await.with_context(|| format!("{shown} runs on"))??;
        let [text, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        ensure!(output.status.success(), "{shown} ended with {}:\n{errors}{text}", output.status);
        Ok(text)
    }
}
