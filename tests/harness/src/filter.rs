//! The two forms of the filter.

use crate::tools;
use anyhow::{Result, bail, ensure};
use std::env;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A form of the filter. What is started, tested and measured is the form that the environment variable
/// `FILTER` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// The wasm module, which Envoy runs in a VM for each worker.
    #[default]
    Wasm,
    /// The dynamic module, which Envoy loads as a library.
    Native,
}

impl Filter {
    /// The form that `FILTER` names; wasm without it.
    pub fn chosen() -> Result<Self> {
        match env::var_os("FILTER") {
            None => Ok(Self::Wasm),
            Some(name) => name.to_string_lossy().parse(),
        }
    }

    /// Where the shipped configurations expect it, from the repository's root.
    pub fn shipped_path(self) -> &'static str {
        match self {
            Self::Wasm => "target/endpoint_picker.wasm",
            Self::Native => "target/libendpoint_picker.so",
        }
    }

    /// The built filter. `NATIVE_MODULE` names another file of the native module, such as one of
    /// `make dist-native`.
    pub fn module(self) -> Result<PathBuf> {
        match self {
            Self::Wasm => built(self.shipped_path(), "wasm"),
            Self::Native => env::var_os("NATIVE_MODULE")
                .map_or_else(|| built(self.shipped_path(), "native"), |path| Ok(path.into())),
        }
    }

    /// The filter for tests: a request with the header `x-test-trap` traps the VM, or panics in the module.
    pub fn trapping_module(self) -> Result<PathBuf> {
        match self {
            Self::Wasm => built("target/endpoint_picker_trap.wasm", "wasm-trap"),
            Self::Native => built("target/libendpoint_picker_trap.so", "native-trap"),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
        })
    }
}

impl FromStr for Filter {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "wasm" => Ok(Self::Wasm),
            "native" => Ok(Self::Native),
            other => bail!("unknown filter {other:?}; must be wasm or native"),
        }
    }
}

/// A file that this target of make builds.
fn built(path: &str, target: &str) -> Result<PathBuf> {
    let path = tools::root().join(path);
    ensure!(path.is_file(), "no filter at {}: run `make {target}`", path.display());
    Ok(path)
}
