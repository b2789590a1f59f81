//! kubectl and helm, as a user runs them.

use super::Cluster;
use crate::programs::program;
use anyhow::{Context, Result, ensure};
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
        run("kubectl", &self.kubeconfig(), self.data.path(), arguments, "").await
    }

    /// Runs helm in the same way.
    pub async fn helm(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
        run("helm", &self.kubeconfig(), self.data.path(), arguments, "").await
    }

    /// Applies manifests to a namespace; those that name one keep theirs.
    pub async fn apply(&self, namespace: &str, manifests: &str) -> Result<String> {
        let arguments = ["apply", "--namespace", namespace, "--filename", "-"];
        run("kubectl", &self.kubeconfig(), self.data.path(), arguments, manifests).await
    }
}

async fn run(
    name: &str,
    kubeconfig: &Path,
    home: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: &str,
) -> Result<String> {
    let mut command = Command::new(program(name)?);
    command.args(arguments).env("KUBECONFIG", kubeconfig).env("HOME", home).kill_on_drop(true);
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
