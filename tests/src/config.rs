//! The shipped Envoy configuration with other ports and paths in it, and with filters put in or left out.

use crate::tools;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Name of the endpoint picker among the HTTP filters.
pub const PICKER: &str = "endpoint-picker";

/// An Envoy configuration.
#[derive(Clone, Debug)]
pub struct Config(Value);

impl Config {
    /// Reads a shipped file; `path` is relative to the repository's root.
    pub fn shipped(path: &str) -> Result<Self> {
        let path = tools::root().join(path);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self(serde_saphyr::from_str(&text).with_context(|| format!("parse {}", path.display()))?))
    }

    /// Puts another port in the one place where `from` stands.
    pub fn set_port(&mut self, from: u16, to: u16) -> Result<()> {
        self.replace_once(&Value::from(from), &Value::from(to))
    }

    /// Puts another path in the one place where `from` stands.
    pub fn set_path(&mut self, from: &str, to: &Path) -> Result<()> {
        self.replace_once(&Value::from(from), &Value::from(to.to_str().context("a path is not UTF-8")?))
    }

    /// Puts `filter` right before the endpoint picker.
    pub fn insert_before_picker(&mut self, filter: Value) -> Result<()> {
        let at = self.picker_position()?;
        self.http_filters()?.insert(at, filter);
        Ok(())
    }

    /// Takes the endpoint picker out.
    pub fn remove_picker(&mut self) -> Result<()> {
        let at = self.picker_position()?;
        self.http_filters()?.remove(at);
        Ok(())
    }

    /// Sets a field of the endpoint picker's own configuration.
    pub fn set_picker_field(&mut self, field: &str, value: Value) -> Result<()> {
        let at = self.picker_position()?;
        let picker = self.http_filters()?[at].pointer_mut("/typed_config/config/configuration/value");
        picker.context("the endpoint picker has no configuration")?[field] = value;
        Ok(())
    }

    /// Writes it in JSON, which Envoy reads as well.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec_pretty(&self.0)?)
            .with_context(|| format!("write {}", path.display()))
    }

    fn http_filters(&mut self) -> Result<&mut Vec<Value>> {
        self.0
            .pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters")
            .and_then(Value::as_array_mut)
            .context("the configuration has no HTTP filters where they are expected")
    }

    fn picker_position(&mut self) -> Result<usize> {
        let position = self.http_filters()?.iter().position(|filter| filter["name"] == PICKER);
        position.with_context(|| format!("the configuration has no HTTP filter {PICKER}"))
    }

    fn replace_once(&mut self, from: &Value, to: &Value) -> Result<()> {
        let found = replace(&mut self.0, from, to);
        ensure!(found == 1, "{from} stands {found} times in the configuration, expected once");
        Ok(())
    }
}

/// Replaces every leaf equal to `from` and counts them.
fn replace(value: &mut Value, from: &Value, to: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(|item| replace(item, from, to)).sum(),
        Value::Object(fields) => fields.values_mut().map(|field| replace(field, from, to)).sum(),
        leaf if leaf == from => {
            *leaf = to.clone();
            1
        }
        _ => 0,
    }
}
