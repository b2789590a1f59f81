//! The proxies that are compared.

use endpoint_picker_harness::Filter;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A proxy among those that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    /// The shipped proxy with Envoy's buffer filter in place of the picker.
    Bare,
    /// The shipped proxy with a build of the picker.
    Picker {
        filter: Filter,
        /// The build; that of this workspace if absent.
        module: Option<PathBuf>,
        rules: Rules,
    },
    /// The proxy with this workspace's native module, which also provides the servers' cluster.
    NativeCluster,
    /// The proxy with a build of the native module, which also resumes streams.
    NativeResuming {
        /// The build; that of this workspace if absent.
        module: Option<PathBuf>,
    },
}

/// The rules by which a picker chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The rules of an agent without others.
    #[default]
    Default,
    /// The EPP's default rules.
    Epp,
}

/// The end of the name of a kind with the EPP's rules.
const EPP: &str = "-epp";

impl ProxyKind {
    /// Whether it is what is shipped as the native module: this workspace's, with the default rules.
    pub(crate) fn is_native(&self) -> bool {
        *self == Self::Picker { filter: Filter::Native, module: None, rules: Rules::Default }
    }

    /// The rules of its picker.
    pub(crate) fn rules(&self) -> Rules {
        match self {
            Self::Picker { rules, .. } => *rules,
            Self::Bare | Self::NativeCluster | Self::NativeResuming { .. } => Rules::Default,
        }
    }
}

impl FromStr for ProxyKind {
    type Err = anyhow::Error;

    /// Reads `bare`, `native-cluster`, or `native-resuming`, `wasm`, `native`, `wasm-epp` or `native-epp`,
    /// each of these five also with the file of another build: `native=old.so`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "bare" => return Ok(Self::Bare),
            "native-cluster" => return Ok(Self::NativeCluster),
            _ => {}
        }
        let (filter, module) = match text.split_once('=') {
            Some((filter, module)) => (filter, Some(PathBuf::from(module))),
            None => (text, None),
        };
        match filter {
            "native-resuming" => Ok(Self::NativeResuming { module }),
            filter => {
                let (filter, rules) =
                    filter.strip_suffix(EPP).map_or((filter, Rules::Default), |filter| (filter, Rules::Epp));
                Ok(Self::Picker { filter: filter.parse()?, module, rules })
            }
        }
    }
}

impl fmt::Display for ProxyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, module) = match self {
            Self::Bare => return f.write_str("bare"),
            Self::NativeCluster => return f.write_str("native-cluster"),
            Self::NativeResuming { module } => ("native-resuming".to_owned(), module),
            Self::Picker { filter, module, rules: Rules::Default } => (filter.to_string(), module),
            Self::Picker { filter, module, rules: Rules::Epp } => (format!("{filter}{EPP}"), module),
        };
        f.write_str(&name)?;
        module.as_ref().map_or(Ok(()), |module| write!(f, "={}", module.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_shown() {
        for text in [
            "bare",
            "wasm",
            "native",
            "native=/builds/old.so",
            "wasm-epp",
            "native-epp=/builds/old.so",
            "native-cluster",
            "native-resuming",
            "native-resuming=/new.so",
        ] {
            assert_eq!(text.parse::<ProxyKind>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        let error = "naked".parse::<ProxyKind>().unwrap_err().to_string();
        assert!(error.contains("naked"), "{error}");
    }
}
