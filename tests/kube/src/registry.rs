//! A registry of container images and charts.

use crate::programs::program;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::tools::root;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command as AsyncCommand;

const READY_DEADLINE: Duration = Duration::from_secs(30);

/// A running registry on loopback, which clients reach by plain HTTP; it ends when dropped.
#[derive(Debug)]
pub struct Registry {
    _process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Registry {
    /// Starts it on a free port; its log goes into the folder `logs`.
    pub async fn start(logs: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(crane()?);
        command.args(["registry", "serve", "--address=127.0.0.1:0", "--disk"]).arg(folder.path());
        let mut process = Process::start("a registry", command, &logs.join("registry.log"))?;
        let address = within(READY_DEADLINE, async || {
            process.check_running()?;
            let output = process.output()?;
            let (_, port) = output.split_once("serving on port ").context("no port yet")?;
            let port = port.lines().next().unwrap_or_default().parse()?;
            anyhow::Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        });
        let address = address.await.map_err(anyhow::Error::msg).context("the registry does not start")?;
        Ok(Self { _process: process, address, folder })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Pushes an image whose only layer has this file at its root under the name `name`, like `FROM scratch`
    /// and one `COPY`.
    pub async fn push(&self, image: &str, file: &Path, name: &str) -> Result<()> {
        let folder = TempDir::new_in(self.folder.path())?;
        fs::copy(file, folder.path().join(name)).with_context(|| format!("copy {}", file.display()))?;
        let layer = folder.path().join("layer.tar");
        let mut tar = AsyncCommand::new("tar");
        run(tar.arg("--create").arg("--file").arg(&layer).arg("--directory").arg(folder.path()).arg(name))
            .await?;
        let mut append = AsyncCommand::new(crane()?);
        append.args(["append", "--oci-empty-base", "--new_tag"]).arg(format!("{}/{image}", self.address));
        run(append.arg("--new_layer").arg(&layer)).await
    }

    /// Packs the chart of a folder, as `tools/release/publish` does, and pushes it to `charts/` below a path
    /// such as `inference`.
    pub async fn push_chart(&self, path: &str, chart: &Path) -> Result<PublishedChart> {
        let folder = TempDir::new_in(self.folder.path())?;
        let mut package = AsyncCommand::new(program("helm")?);
        run(package.arg("package").arg(chart).arg("--destination").arg(folder.path())).await?;
        let package = fs::read_dir(folder.path())?.next().context("helm packed nothing")??.path();
        let name = package.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let version = name.strip_prefix("endpoint-picker-").context("the package has another name")?;
        let charts = format!("oci://{}/{path}/charts", self.address);
        let mut push = AsyncCommand::new(program("helm")?);
        run(push.arg("push").arg("--plain-http").arg(&package).arg(&charts)).await?;
        Ok(PublishedChart { address: format!("{charts}/endpoint-picker"), version: version.to_owned() })
    }
}

/// A chart of the product in a registry.
#[derive(Clone, Debug)]
pub struct PublishedChart {
    address: String,
    version: String,
}

impl PublishedChart {
    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The arguments by which helm finds it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        vec![self.address.clone(), format!("--version={}", self.version), "--plain-http".to_owned()]
    }
}

fn crane() -> Result<PathBuf> {
    let path = root().join(".tools/bin/crane");
    ensure!(path.exists(), "no {}: run `make gateway-tools`", path.display());
    Ok(path)
}

async fn run(command: &mut AsyncCommand) -> Result<()> {
    let output = command.kill_on_drop(true).output().await.with_context(|| format!("start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
