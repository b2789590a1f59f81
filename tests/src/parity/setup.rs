//! The configurations both pickers run, and what their cases vary.

use crate::tools;
use anyhow::{Context, Result, bail};
use endpoint_picker::config::PickerConfig;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A configuration and the cases that put it to the test.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its name, that of its `EndpointPickerConfig` and that of its recording.
    pub name: &'static str,
    /// Model servers.
    pub servers: usize,
    /// Tokens in a block and blocks in the cache, as every server says; the reference lets any one decide for all.
    pub cache: Option<(u32, u32)>,
    /// Cases drawn.
    pub cases: usize,
    /// Whether paths, bodies and hints that are no ordinary ones are among the cases.
    pub odd_requests: bool,
    /// Whether servers have adapters, and requests ask for them.
    pub adapters: bool,
}

/// What `make parity` compares.
pub const SETUPS: &[Setup] = &[Setup {
    name: "default",
    servers: 4,
    cache: Some((16, 60)),
    cases: 200,
    odd_requests: true,
    adapters: false,
}];

impl Setup {
    /// The setup of this name.
    pub fn named(name: &str) -> Result<&'static Self> {
        SETUPS.iter().find(|setup| setup.name == name).with_context(|| {
            let names: Vec<&str> = SETUPS.iter().map(|setup| setup.name).collect();
            format!("no setup is called {name:?}; there are {}", names.join(", "))
        })
    }

    /// An endpoint's name.
    pub fn endpoint_name(server: usize) -> String {
        format!("server-{server}")
    }

    /// An endpoint's labels.
    pub fn labels(&self, _server: usize) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What our rules are compiled from.
    pub fn picker_config(&self) -> Result<PickerConfig> {
        if self.name == "default" { Ok(PickerConfig::default()) } else { bail!("cannot be read yet") }
    }

    /// The document for the reference: ours, and where its endpoints come from. JSON is YAML too.
    pub(super) fn reference_config(&self, endpoints: &Path) -> Result<String> {
        let mut config = self.document()?;
        let discovery =
            json!({"name": "endpoints", "type": "file-discovery", "parameters": {"path": endpoints}});
        config["plugins"].as_array_mut().context("plugins")?.push(discovery);
        config["dataLayer"]["discovery"] = json!({"pluginRef": "endpoints"});
        Ok(config.to_string())
    }

    fn document(&self) -> Result<Value> {
        let path = folder().join("configs").join(format!("{}.yaml", self.name));
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("parse {}", path.display()))
    }
}

/// Where configurations and recordings are.
pub(super) fn folder() -> PathBuf {
    tools::root().join("tests/parity")
}
