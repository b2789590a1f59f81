//! Documents with an `EndpointPickerConfig`, as both pickers run them.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The configuration of a pool, and other objects.
#[derive(Clone, Debug)]
pub struct Manifests {
    config: Value,
    others: Vec<Value>,
}

impl Manifests {
    /// Reads a file with an `EndpointPickerConfig` and other objects.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// The documents of a text.
    pub fn parse(text: &str) -> Result<Self> {
        let mut others: Vec<Value> = serde_saphyr::from_multiple(text)?;
        let config = others.iter().position(|document| document["kind"] == "EndpointPickerConfig");
        let config = config.context("no EndpointPickerConfig")?;
        Ok(Self { config: others.remove(config), others })
    }

    /// A document without other objects.
    pub(crate) fn of_config(config: Value) -> Self {
        Self { config, others: Vec::new() }
    }

    /// The configuration.
    pub(crate) fn config(&self) -> &Value {
        &self.config
    }

    /// The place of the endpoints in it: a file.
    pub fn with_endpoints(mut self, endpoints: &Path) -> Result<Self> {
        let discovery =
            json!({"name": "endpoints", "type": "file-discovery", "parameters": {"path": endpoints}});
        self.config["plugins"].as_array_mut().context("plugins")?.push(discovery);
        self.config["dataLayer"]["discovery"] = json!({"pluginRef": "endpoints"});
        Ok(self)
    }

    /// Writes all documents, as the agent reads them. JSON is YAML too.
    pub fn write(&self, path: &Path) -> Result<()> {
        let all = std::iter::once(&self.config).chain(&self.others);
        write(path, &all.map(Value::to_string).collect::<Vec<_>>().join("\n---\n"))
    }

    /// Writes the configuration only, as the EPP reads it.
    pub fn write_config(&self, path: &Path) -> Result<()> {
        write(path, &self.config.to_string())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
