//! What Envoy is given to load.

use crate::report::table::Row;
use anyhow::Result;
use endpoint_picker_harness::shipped::Module;
use std::collections::BTreeSet;

/// The module's size, and the functions it expects of its host.
pub(crate) fn module() -> Result<(Row, BTreeSet<String>)> {
    let Module { bytes, imports, .. } = Module::read()?;
    Ok((Row::alone("wasm module", bytes as f64 / 1e6, "MB", 1.5), imports))
}
