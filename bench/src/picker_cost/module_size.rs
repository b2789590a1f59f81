//! The size of the modules that Envoy loads.

use crate::report::OwnFigure;
use anyhow::{Context, Result};
use endpoint_picker_harness::Filter;
use std::fs;

/// The most megabytes that the wasm module may have; the native one has no bound.
const MOST_WASM: f64 = 1.5;

/// The sizes of both forms of the filter.
pub(crate) fn module_sizes() -> Result<[OwnFigure; 2]> {
    let size = |what: &str, filter: Filter, most| {
        let path = filter.module()?;
        let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        anyhow::Ok(OwnFigure { what: what.to_owned(), figure: bytes as f64 / 1e6, unit: "MB", most })
    };
    Ok([size("wasm module", Filter::Wasm, Some(MOST_WASM))?, size("native module", Filter::Native, None)?])
}
