//! What Envoy is given to load.

use super::table::Row;
use crate::module::Module;
use anyhow::Result;
use std::collections::BTreeSet;

/// The module's size, and the functions it expects of its host.
pub fn module() -> Result<(Row, BTreeSet<String>)> {
    let Module { bytes, imports, .. } = Module::read()?;
    Ok((Row::alone("wasm module", bytes as f64 / 1e6, "MB", 1.5), imports))
}
