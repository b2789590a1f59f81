//! Conversions of policies.

use core::time::Duration;

use endpoint_picker::config::{
    ConfigError, ConfigErrors, FlowControlConfig, PickerConfig, PriorityBand, ProfileConfig, ProfilePlugin,
};
use endpoint_picker::decision::FailureMode;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pipeline::shadow::Shadow;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::policy::{
    InferenceModel, InferenceModels, Objectives, Policy, RecordSample, RewriteRule, Rewrites, Target,
};

use crate::v1;

/// The pipeline of a policy's configuration, or of the default if it has none.
pub fn pipeline_into_core(policy: &mut v1::Policy) -> Result<Pipeline, ConfigErrors> {
    let config = policy.picker_config.take();
    compile(config, policy)
}

/// The policy's shadow configuration, if it has one.
pub fn shadow_into_core(policy: &mut v1::Policy, acting: &Pipeline) -> Result<Option<Shadow>, ConfigErrors> {
    let Some(config) = policy.shadow_config.take() else { return Ok(None) };
    Ok(Some(Shadow::new(compile(Some(config), policy)?, acting)))
}

/// Compiles a configuration, the default if there is none, by the rules of a policy.
fn compile(config: Option<v1::PickerConfig>, policy: &v1::Policy) -> Result<Pipeline, ConfigErrors> {
    let config = config.map(picker_config_into_core).transpose();
    let config = PickerConfig {
        epp_rules: epp_rules_into_core(policy.epp_rules()),
        scrape_interval: Duration::from_millis(policy.scrape_interval_ms),
        ..config.map_err(|error| ConfigErrors(vec![error]))?.unwrap_or_default()
    };
    let neutral_score_after = policy.neutral_score_after_ms.map(Duration::from_millis);
    Ok(Pipeline::compile(config)?.with_neutral_score_after(neutral_score_after))
}

/// The rules of a message.
pub fn epp_rules_into_core(rules: v1::EppRules) -> EppRules {
    match rules {
        v1::EppRules::Own => EppRules::Own,
        v1::EppRules::V010 => EppRules::V010,
        v1::EppRules::Ebab68792 => EppRules::Ebab68792,
        v1::EppRules::V011 => EppRules::V011,
    }
}

/// The rules as a message has them.
pub fn epp_rules_from_core(rules: EppRules) -> v1::EppRules {
    match rules {
        EppRules::Own => v1::EppRules::Own,
        EppRules::V010 => v1::EppRules::V010,
        EppRules::Ebab68792 => v1::EppRules::Ebab68792,
        EppRules::V011 => v1::EppRules::V011,
    }
}

/// The configuration of a message, without what a policy adds.
pub fn picker_config_into_core(config: v1::PickerConfig) -> Result<PickerConfig, ConfigError> {
    let plugins = config.plugins.into_iter().enumerate().map(|(index, plugin)| {
        let refuse = |error| ConfigError { at: format!("plugins[{index}]"), problem: format!("{error}") };
        let read = read_plugin(&plugin.r#type, &plugin.parameters).map_err(refuse)?;
        Ok(Instance { name: plugin.name, plugin: read })
    });
    let plugins = plugins.collect::<Result<_, _>>()?;
    let profiles = config.profiles.into_iter().map(|profile| ProfileConfig {
        name: profile.name,
        plugins: profile
            .plugins
            .into_iter()
            .map(|plugin| ProfilePlugin { name: plugin.name, weight: plugin.weight })
            .collect(),
    });
    Ok(PickerConfig {
        plugins,
        profiles: profiles.collect(),
        parsers: config.parsers,
        propagate_priority: config.propagate_priority,
        saturation_detector: config.saturation_detector,
        flow_control: config.flow_control.map(flow_control_into_core),
        ..PickerConfig::default()
    })
}

fn flow_control_into_core(config: v1::FlowControl) -> FlowControlConfig {
    let bands = config.priority_bands.into_iter();
    FlowControlConfig {
        max_bytes: config.max_bytes,
        max_requests: config.max_requests,
        default_request_ttl: config.default_request_ttl_ms.map(Duration::from_millis),
        no_endpoint_request_ttl: config.no_endpoint_request_ttl_ms.map(Duration::from_millis),
        default_priority_band: config.default_priority_band.map(band_into_core),
        default_negative_priority_band: config.default_negative_priority_band.map(band_into_core),
        priority_bands: bands.map(|band| (band.priority, band_into_core(band))).collect(),
        usage_limit_policy: config.usage_limit_policy,
        enable_eviction: config.enable_eviction,
    }
}

fn band_into_core(band: v1::PriorityBand) -> PriorityBand {
    PriorityBand {
        max_bytes: band.max_bytes,
        max_requests: band.max_requests,
        default_request_ttl: band.default_request_ttl_ms.map(Duration::from_millis),
        fairness_policy: band.fairness_policy,
        ordering_policy: band.ordering_policy,
    }
}

/// The policy of a message, without the picker's configuration. An unknown failure mode counts as absent.
pub fn policy_into_core(policy: v1::Policy) -> Policy {
    let failure_mode = match policy.failure_mode() {
        v1::FailureMode::Unspecified => None,
        v1::FailureMode::FailOpen => Some(FailureMode::FailOpen),
        v1::FailureMode::FailClose => Some(FailureMode::FailClose),
    };
    let rule = |rule: v1::RewriteRule| RewriteRule {
        resource: rule.resource,
        models: rule.models,
        targets: targets(rule.targets),
    };
    let model = |model: v1::InferenceModel| InferenceModel {
        name: model.name,
        priority: model.priority,
        targets: targets(model.targets),
    };
    Policy {
        requires_model: policy.epp_rules() != v1::EppRules::Own,
        failure_mode,
        objectives: Objectives::new(policy.objectives.into_iter().map(|it| (it.name, it.priority))),
        rewrites: Rewrites::new(policy.rewrite_rules.into_iter().map(rule)),
        inference_models: InferenceModels::new(policy.inference_models.into_iter().map(model)),
        emit_endpoint_scores: policy.emit_endpoint_scores,
        avoid_failing: Duration::from_millis(policy.avoid_failing_ms),
        refusal: policy.refusal,
        fallback: policy.fallback,
        record: policy.record.map(|sample| RecordSample { key: sample.key, limit: sample.limit }),
    }
}

fn targets(targets: Vec<v1::Target>) -> Vec<Target> {
    targets.into_iter().map(|target| Target { model: target.model, weight: target.weight }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn a_policy_arrives_as_it_was_sent() {
        let target = |model: &str, weight| v1::Target { model: model.to_owned(), weight };
        let core_target = |model: &str, weight| Target { model: model.to_owned(), weight };
        let sent = v1::Policy {
            failure_mode: v1::FailureMode::FailClose.into(),
            picker_config: None,
            shadow_config: None,
            objectives: vec![v1::Objective { name: "shed".to_owned(), priority: -7 }],
            rewrite_rules: vec![v1::RewriteRule {
                resource: "canary".to_owned(),
                models: vec!["a".to_owned(), "b".to_owned()],
                targets: vec![target("c", Some(0)), target("d", None)],
            }],
            inference_models: vec![v1::InferenceModel {
                name: "m".to_owned(),
                priority: -1,
                targets: vec![target("n", Some(u32::MAX))],
            }],
            emit_endpoint_scores: true,
            neutral_score_after_ms: Some(2000),
            avoid_failing_ms: 250,
            epp_rules: v1::EppRules::V011.into(),
            refusal: Some("a reason".to_owned()),
            fallback: vec!["team/spare".to_owned()],
            scrape_interval_ms: 50,
            record: Some(v1::RecordSample { key: 3, limit: 4 }),
        };
        let read = policy_into_core(v1::Policy::decode(&*sent.encode_to_vec()).unwrap());
        let expected = Policy {
            failure_mode: Some(FailureMode::FailClose),
            objectives: Objectives::new([("shed".to_owned(), -7)]),
            rewrites: Rewrites::new([RewriteRule {
                resource: "canary".to_owned(),
                models: vec!["a".to_owned(), "b".to_owned()],
                targets: vec![core_target("c", Some(0)), core_target("d", None)],
            }]),
            inference_models: InferenceModels::new([InferenceModel {
                name: "m".to_owned(),
                priority: -1,
                targets: vec![core_target("n", Some(u32::MAX))],
            }]),
            requires_model: true,
            emit_endpoint_scores: true,
            avoid_failing: Duration::from_millis(250),
            refusal: Some("a reason".to_owned()),
            fallback: vec!["team/spare".to_owned()],
            record: Some(RecordSample { key: 3, limit: 4 }),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn absent_fields_have_their_defaults() {
        assert_eq!(policy_into_core(v1::Policy::default()), Policy::default());
        assert_eq!(
            policy_into_core(v1::Policy { failure_mode: 99, ..v1::Policy::default() }),
            Policy::default()
        );
    }
}
