//! The recommended configuration of the picker, `examples/choosing/expected-latency.yaml`, and its switches.

use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs;

/// The configuration with these switches turned on, as the `sed` command in the file does.
pub fn recommended(switches: &[&str]) -> Result<String> {
    let path = tools::root().join("examples/choosing/expected-latency.yaml");
    let mut text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    for switch in switches {
        let mark = format!("#{switch} ");
        ensure!(text.lines().any(|line| line.starts_with(&mark)), "{} has no {mark:?}", path.display());
        text = text.lines().map(|line| line.strip_prefix(&mark).unwrap_or(line).to_owned() + "\n").collect();
    }
    Ok(text)
}

/// The names of the switches, in their order in the file.
pub fn switches() -> Result<Vec<String>> {
    let text = recommended(&[])?;
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        // A comment has a blank behind its `#`.
        let name = line.strip_prefix('#').and_then(|line| line.split(' ').next()).unwrap_or_default();
        if !name.is_empty() && names.iter().all(|known| known != name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
