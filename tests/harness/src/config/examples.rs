//! The shipped examples by their names.

use super::differences::DIFFERENCES;
use super::file::Config;
use crate::{Filter, tools};
use anyhow::{Context, Result, ensure};
use std::fs;

const FOLDER: &str = "examples";

/// The names of all examples, in order.
pub fn examples() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(tools::root().join(FOLDER))? {
        let entry = entry?;
        if entry.path().join(DIFFERENCES).is_file() {
            names.push(entry.file_name().into_string().ok().context("an example's name is not UTF-8")?);
        }
    }
    names.sort();
    Ok(names)
}

/// The whole configuration of an example for this form of the filter, in YAML, after the comment that begins
/// its file.
pub fn example(name: &str, filter: Filter) -> Result<String> {
    let known = examples()?;
    ensure!(
        known.iter().any(|known| known == name),
        "no example {name:?}; must be one of {}",
        known.join(", ")
    );
    let folder = format!("{FOLDER}/{name}");
    let text = fs::read_to_string(tools::root().join(&folder).join(DIFFERENCES))?;
    let mut lines: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
    let origin = format!("#\n# Printed by `make example NAME={name} FILTER={filter}`.");
    lines.push(&origin);
    let mut config = Config::converted(&folder, filter)?;
    let config = serde_saphyr::to_string(config.document())?;
    Ok(format!("{}\n\n{config}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn every_example_is_printed_whole_in_both_forms_after_its_comment() {
        for name in examples().unwrap() {
            let file = tools::root().join(FOLDER).join(&name).join(DIFFERENCES);
            let source = fs::read_to_string(file).unwrap();
            for filter in [Filter::Wasm, Filter::Native] {
                let text = example(&name, filter).unwrap();
                assert_eq!(text.lines().next(), source.lines().next(), "{name}");
                let read: Value = serde_saphyr::from_str(&text).unwrap();
                let folder = format!("{FOLDER}/{name}");
                assert_eq!(&read, Config::converted(&folder, filter).unwrap().document(), "{name}");
            }
        }
        let error = example("none", Filter::Wasm).unwrap_err().to_string();
        assert!(error.contains("must be one of compose, grpc, no-agent, "), "{error}");
    }
}
