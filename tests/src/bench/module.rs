//! What Envoy is given to load.

use super::table::Row;
use crate::tools;
use anyhow::{Context, Result};
use std::fs;
use wasmparser::{Parser, Payload};

/// The module's size, and the functions it expects of its host.
pub fn module() -> Result<(Row, Vec<String>)> {
    let bytes = fs::read(tools::filter_wasm()?)?;
    let mut imports = Vec::new();
    for payload in Parser::new(0).parse_all(&bytes) {
        if let Payload::ImportSection(section) = payload.context("read the filter's module")? {
            for import in section.into_imports() {
                imports.push(import?.name.to_owned());
            }
        }
    }
    Ok((Row::alone("wasm module", bytes.len() as f64 / 1e6, "MB", 1.5), imports))
}
