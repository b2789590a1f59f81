//! The size of the module that Envoy loads.

use crate::report::table::Row;
use anyhow::Result;
use endpoint_picker_harness::shipped::Module;
use std::collections::BTreeSet;

/// The module's size, and the host functions that it imports.
pub(crate) fn module() -> Result<(Row, BTreeSet<String>)> {
    let Module { bytes, imports, .. } = Module::read()?;
    Ok((Row::alone("wasm module", bytes as f64 / 1e6, "MB", 1.5), imports))
}
