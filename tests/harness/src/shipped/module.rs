//! The built filter: its imports and exports.

use crate::Filter;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use wasmparser::{ExternalKind, Parser, Payload};

/// The filter as Envoy loads it.
#[derive(Debug)]
pub struct Module {
    /// The host's functions that it calls.
    pub imports: BTreeSet<String>,
    /// Its functions that the host calls.
    pub exports: BTreeSet<String>,
}

impl Module {
    /// Reads the filter that `make wasm` has built.
    pub fn read() -> Result<Self> {
        let bytes = fs::read(Filter::Wasm.module()?)?;
        let mut module = Self { imports: BTreeSet::new(), exports: BTreeSet::new() };
        for payload in Parser::new(0).parse_all(&bytes) {
            match payload.context("read the filter's module")? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        module.imports.insert(import?.name.to_owned());
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            module.exports.insert(export.name.to_owned());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(module)
    }
}
