//! The next version of the product, which `tools/test/upgrade` builds: this source with a higher version and
//! other formats between agent and filter.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::tools::root;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// The built next version.
#[derive(Clone, Debug)]
pub struct NextVersion {
    folder: PathBuf,
    version: String,
}

impl NextVersion {
    /// The one that is built in `target/next`.
    ///
    /// # Errors
    /// It is not built.
    pub fn built() -> Result<Self> {
        let folder = root().join("target/next");
        let chart = folder.join("source/deploy/chart/Chart.yaml");
        let chart = fs::read_to_string(&chart)
            .with_context(|| format!("{}: run `make test-upgrade`", chart.display()))?;
        let chart: Value = serde_saphyr::from_str(&chart)?;
        let version = chart["version"].as_str().context("the chart has no version")?.to_owned();
        let next = Self { folder, version };
        for file in [next.agent(), next.native_module()] {
            ensure!(file.is_file(), "no {}: run `make test-upgrade`", file.display());
        }
        Ok(next)
    }

    /// Its version, such as `1.2.3`, which is also the tag of its images.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder of its chart.
    pub fn chart(&self) -> PathBuf {
        self.folder.join("source/deploy/chart")
    }

    /// Its agent.
    pub(crate) fn agent(&self) -> PathBuf {
        self.folder.join("target/debug/metrics-agent")
    }

    /// Its native module.
    pub(crate) fn native_module(&self) -> PathBuf {
        self.folder.join("target/native/libendpoint_picker_native.so")
    }
}
