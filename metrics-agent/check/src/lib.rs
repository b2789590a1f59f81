//! `metrics-agent check`: checks manifests, or a cluster, and prints a summary.

pub mod cluster;
mod envoy_gateway;
mod grpc;

use core::fmt::Write;
use std::path::Path;

use endpoint_picker_wire::{NamedRules, pipeline_into_core, v1};
use metrics_agent_catalogue::dialect::{Engine, MetricSpec};
use metrics_agent_catalogue::plan::members::Members;
use metrics_agent_catalogue::{Options, Plan, PoolPlan, differences};
use metrics_agent_sources::manifests::{self, Problems};
use metrics_agent_status::columns::counted;

/// A summary of the manifests, or all their problems.
pub fn check(path: &Path, options: &Options) -> Result<String, Problems> {
    let files = manifests::read(path)?;
    let plan = Plan::read(&files, options)?;
    let (documents, files) = (counted(plan.documents, "document"), counted(files.len(), "file"));
    let mut text = format!("valid: {documents} in {files}\n");
    add_plan(&mut text, &plan);
    Ok(text)
}

/// Attempts of a request with the shipped `envoy.yaml`: the first, and `num_retries` more.
const SHIPPED_ATTEMPTS: usize = 4;

/// Adds the pools of a plan, then its warnings.
fn add_plan(summary: &mut String, plan: &Plan) {
    for pool in &plan.pools {
        add_pool(summary, pool);
    }
    if let Some(path) = &plan.endpoints_file {
        let _ = writeln!(summary, "endpoints: {}", path.display());
    }
    for warning in &plan.warnings {
        let _ = writeln!(summary, "warning: {warning}");
    }
}

fn add_pool(summary: &mut String, pool: &PoolPlan) {
    let _ = writeln!(summary, "pool {:?}: {}", pool.name, members(&pool.members));
    let rules = if pool.rules().is_own() {
        String::new()
    } else {
        format!("; the rules of the EPP's {}", pool.rules().as_str())
    };
    let _ = writeln!(summary, "  {}{rules}", policy(&pool.policy));
    let dialects = pool.dialects();
    let _ = writeln!(summary, "  {}", unnamed_engines(dialects.unnamed()));
    if let Some(filters) = filters_by_saturation(&pool.policy) {
        let _ = writeln!(summary, "  {filters}");
    }
    if let Some(warning) = long_list(&pool.policy) {
        let _ = writeln!(summary, "  warning: {warning}");
    }
    for warning in grpc::warnings(pool) {
        let _ = writeln!(summary, "  warning: {warning}");
    }
    for difference in differences::of_pool(pool) {
        let _ = writeln!(summary, "  differs from the EPP: {difference}");
    }
}

/// The profiles in which the saturation detector filters after all other filters.
fn filters_by_saturation(policy: &v1::Policy) -> Option<String> {
    let pipeline = pipeline_into_core(&mut policy.clone()).ok()?;
    let (detector, profiles) = pipeline.filters_by_saturation()?;
    let names: Vec<_> = profiles.iter().map(|name| format!("{name:?}")).collect();
    Some(format!("the saturation detector {detector:?} filters last in the profiles {}", names.join(", ")))
}

/// A warning about a picker whose list is longer than the attempts of the shipped Envoy configuration.
fn long_list(policy: &v1::Policy) -> Option<String> {
    let pipeline = pipeline_into_core(&mut policy.clone()).ok()?;
    let pickers =
        pipeline.plugins().iter().filter_map(|instance| Some((instance, instance.plugin.roles().picker?)));
    let (instance, endpoints) = pickers
        .map(|(instance, picker)| (instance, picker.max_endpoints()))
        .max_by_key(|&(_, endpoints)| endpoints)
        .filter(|&(_, endpoints)| endpoints > SHIPPED_ATTEMPTS)?;
    Some(format!(
        "plugin {:?}: maxNumOfEndpoints is {endpoints}, and the shipped envoy.yaml sends a request to at most {SHIPPED_ATTEMPTS} endpoints; \
         set num_retries of the route's retry_policy to {}",
        instance.name,
        endpoints - 1
    ))
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

/// How endpoints without an engine label are read. `explain` shows the metric of KV usage that each server
/// has.
fn unnamed_engines(engines: &[Engine]) -> String {
    let [Engine { dialect, .. }] = engines else {
        let names: Vec<_> = engines.iter().map(|engine| &*engine.name).collect();
        return format!(
            "endpoints without an engine label are recognised by their metrics: {}",
            names.join(", ")
        );
    };
    let names: Vec<_> = dialect.kv_usage.iter().map(MetricSpec::name).collect();
    match names[..] {
        [] => "KV usage is not read".to_owned(),
        [first, ref others @ ..] => {
            let others = others.iter().map(|name| format!(", or {name} where a server lacks it"));
            format!("KV usage is read from {first}{}", others.collect::<String>())
        }
    }
}

fn policy(policy: &v1::Policy) -> String {
    let size = |config: &v1::PickerConfig| {
        let profiles = config.profiles.len().max(1);
        format!("{}, {}", counted(config.plugins.len(), "plugin"), counted(profiles, "profile"))
    };
    let named = NamedRules::ALL.into_iter().find(|rules| rules.picker_config() == policy.picker_config);
    let config = match (named, &policy.picker_config) {
        (None, Some(config)) => size(config),
        (named, _) => format!("the rules {}", named.unwrap_or(NamedRules::Epp).as_str()),
    };
    let shadow = policy.shadow_config.as_ref().map(|shadow| format!("; a shadow of {}", size(shadow)));
    let failure_mode = match policy.failure_mode() {
        v1::FailureMode::Unspecified => "the filter's failure mode",
        v1::FailureMode::FailOpen => "FailOpen",
        v1::FailureMode::FailClose => "FailClose",
    };
    format!(
        "{config}; {failure_mode}; {}, {}, {}{}",
        counted(policy.objectives.len(), "objective"),
        counted(policy.rewrite_rules.len(), "rewrite rule"),
        counted(policy.inference_models.len(), "model"),
        shadow.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::SHIPPED_ATTEMPTS;

    #[test]
    fn the_shipped_configuration_has_the_attempts_of_the_check() {
        let shipped = include_str!("../../../envoy.yaml");
        let retries: Vec<_> =
            shipped.lines().filter_map(|line| line.trim().strip_prefix("num_retries: ")).collect();
        assert_eq!(retries, [(SHIPPED_ATTEMPTS - 1).to_string()]);
    }
}
