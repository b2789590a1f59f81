//! The hooks of containers that run before their end.

use super::probe::port_number;
use anyhow::{Context, Result, bail, ensure};
use endpoint_picker_harness::client;
use k8s_openapi::api::core::v1::Container;
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::process::Command;
use tokio::time::timeout_at;

/// Runs the hook `preStop` of a container, if it has one, until it ends or `deadline` has passed. `process`
/// is the container's program, whose namespaces and root folder a command gets.
pub(super) async fn run_pre_stop(
    container: &Container,
    process: u32,
    address: Ipv4Addr,
    deadline: Instant,
) -> Result<()> {
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let Some(hook) = hook else { return Ok(()) };
    if let Some(exec) = &hook.exec {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={process}"))
            .args(["--net", "--mount", "--uts", "--root", "--wd=/", "--"]);
        command.args(exec.command.iter().flatten()).kill_on_drop(true);
        let output = timeout_at(deadline.into(), command.output()).await?.context("start nsenter")?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        return Ok(());
    }
    let Some(get) = &hook.http_get else {
        bail!("container {:?}: its kind of hook is not supported here", container.name)
    };
    let path = get.path.as_deref().unwrap_or("/");
    let url = format!("http://{address}:{}{path}", port_number(&get.port, container)?);
    let request = client::http1().get(url).timeout(deadline.saturating_duration_since(Instant::now()));
    request.send().await?.error_for_status()?;
    Ok(())
}
