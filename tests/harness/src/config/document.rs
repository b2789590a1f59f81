//! Files of configurations, and places in their documents.

use crate::tools;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The HTTP connection manager of a listener.
pub(super) fn connection_manager_of(listener: &mut Value) -> Result<&mut Value> {
    listener
        .pointer_mut("/filter_chains/0/filters/0/typed_config")
        .context("a listener has no HTTP connection manager where it is expected")
}

/// A file in YAML; its path is relative to the repository's root.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let file = tools::root().join(path);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("parse {}", file.display()))
}

/// The HTTP filters of a connection manager.
pub(super) fn http_filters(manager: &mut Value) -> Result<&mut Vec<Value>> {
    let filters = manager["http_filters"].as_array_mut();
    filters.context("the configuration has no HTTP filters where they are expected")
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// Replaces every leaf equal to `from` and counts them.
pub(super) fn replace(value: &mut Value, from: &Value, to: &Value) -> usize {
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

/// Replaces the folder `from` at the beginning of every text.
pub(super) fn move_files(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| move_files(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| move_files(field, from, to)),
        Value::String(text) => {
            if let Some(rest) = text.strip_prefix(from) {
                *text = format!("{to}{rest}");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
