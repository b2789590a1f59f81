//! `metrics-agent check`: what the agent would make of manifests.

use core::fmt::Write;
use std::path::Path;

use endpoint_picker_wire::v1;

use super::members::Members;
use super::{Options, Plan, Problems, source};

/// A summary of the manifests, or all that is wrong with them.
pub fn check(path: &Path, options: &Options) -> Result<String, Problems> {
    let files = source::read(path, options.file_limits)?;
    let plan = Plan::read(&files, options)?;
    let mut summary = format!("good: {} documents in {} files\n", plan.documents, files.len());
    for pool in &plan.pools {
        let _ = writeln!(summary, "pool {:?}: {}", pool.name, members(&pool.members));
        let _ = writeln!(summary, "  {}", policy(&pool.policy));
    }
    if let Some(path) = &plan.endpoints_file {
        let _ = writeln!(summary, "endpoints: {}", path.display());
    }
    for warning in &plan.warnings {
        let _ = writeln!(summary, "warning: {warning}");
    }
    Ok(summary)
}

fn members(members: &Members) -> String {
    match members {
        Members::All => "all endpoints".to_owned(),
        Members::Selected { namespace, labels, target_ports } => {
            let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let ports: Vec<_> = target_ports.iter().map(ToString::to_string).collect();
            format!("namespace {namespace}, labels {}, target ports {}", labels.join(","), ports.join(","))
        }
    }
}

fn policy(policy: &v1::Policy) -> String {
    let size = |config: &v1::PickerConfig| {
        format!("{} plugins, {} profiles", config.plugins.len(), config.profiles.len().max(1))
    };
    let config = policy.picker_config.as_ref().map_or("the default configuration".to_owned(), size);
    let shadow = policy.shadow_config.as_ref().map(|shadow| format!("; a shadow of {}", size(shadow)));
    let failure_mode = match policy.failure_mode() {
        v1::FailureMode::Unspecified => "the filter's failure mode",
        v1::FailureMode::FailOpen => "FailOpen",
        v1::FailureMode::FailClose => "FailClose",
    };
    format!(
        "{config}; {failure_mode}; {} objectives, {} rewrite rules, {} models{}",
        policy.objectives.len(),
        policy.rewrite_rules.len(),
        policy.inference_models.len(),
        shadow.unwrap_or_default()
    )
}
