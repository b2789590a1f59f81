//! The chart, rendered without a cluster.

use crate::programs::program;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::tools::root;
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The objects of a release `picker` in the namespace `inference` with these values, in addition to the
/// chart's own.
pub fn render(values: &Value) -> Result<Vec<Value>> {
    let mut command = Command::new(program("helm")?);
    command.args(["template", "picker"]).arg(root().join("deploy/chart"));
    command.args(["--namespace", "inference", "--values", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut helm = command.spawn().context("start helm")?;
    helm.stdin.take().context("its standard input")?.write_all(values.to_string().as_bytes())?;
    let output = helm.wait_with_output()?;
    ensure!(output.status.success(), "helm template: {}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// The object of this kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}
