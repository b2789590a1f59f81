//! Flags about pools and policies, for the agent and for `check`.

use core::time::Duration;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use endpoint_picker::epp_rules::EppRules;
use metrics_agent_catalogue::Options;

use super::values::{self, FlagError, RulesChoice, RulesFlag};

/// Flags about pools and policies.
#[derive(Args, Debug)]
#[command(next_help_heading = "Pools and policies")]
pub struct PolicyFlags {
    /// The name of the pool when the manifests have no `InferencePool`, default by default; the filter's
    /// configuration names it. On a cluster the only pool to serve, by default all of them.
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = values::pool)]
    pool: Option<String>,

    /// The rules of pools without an `EndpointPickerConfig` in a manifest: expected-latency, which is
    /// recommended and the default; epp, the EPP's default, which is also the default with --epp-rules of a
    /// version of the EPP; or a file with an `EndpointPickerConfig` for all pools, which is read like
    /// --manifests, and again when it changes.
    #[arg(long, value_name = "expected-latency|epp|FILE", value_parser = values::rules)]
    rules: Option<RulesChoice>,

    /// Allow plugins of the EPP's alpha stage.
    #[arg(long)]
    allow_experimental_plugins: bool,

    /// Give filters after the picker the score of every rated endpoint.
    #[arg(long)]
    emit_endpoint_scores: bool,

    /// Age of metrics from which scorers give an endpoint a neutral score, such as 2s; so do endpoints that
    /// were never scraped. Without it the last values are used, and an endpoint without values counts as
    /// idle, as in the EPP.
    #[arg(long, alias = "no-opinion-after", value_name = "TIME", value_parser = values::duration)]
    neutral_score_after: Option<Duration>,

    /// How long an endpoint is avoided after a failed request while there are others; twice as long with each
    /// further failure, up to eight times. 0s: not at all, as in the EPP.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = values::duration_or_none)]
    avoid_failing: Duration,

    /// The rules that decide where ours differ from the EPP's, and its versions from each other. A pool's
    /// annotation endpoint-picker/epp-rules takes their place.
    #[arg(long, value_name = "own|v0.10|v0.11", default_value = EppRules::default().as_str(), value_parser = values::epp_rules)]
    epp_rules: RulesFlag,
}

impl PolicyFlags {
    /// The only pool to serve on a cluster.
    pub fn only_pool(&self) -> Option<&str> {
        self.pool.as_deref()
    }

    /// The file of rules that the flags name.
    pub(super) fn take_rules_file(&mut self) -> Option<PathBuf> {
        match self.rules.take() {
            Some(RulesChoice::File(file)) => Some(file),
            named @ (None | Some(RulesChoice::Named(_))) => {
                self.rules = named;
                None
            }
        }
    }

    /// Options for reading manifests.
    pub fn options(self) -> Result<Options, FlagError> {
        if self.epp_rules.is_former {
            let (former, current) = (EppRules::FORMER_V011, self.epp_rules.rules.as_str());
            let text = format!("--epp-rules {former} is the former name of {current}; use {current}");
            // The log is not set up yet. A warning that cannot be written is left out.
            let _ = writeln!(io::stderr(), "metrics-agent: {text}");
        }
        let rules = match self.rules {
            None => None,
            Some(RulesChoice::Named(rules)) => Some(rules),
            Some(RulesChoice::File(_)) => {
                return Err(FlagError(
                    "--rules with a file is a flag of the agent; give check the file as its PATH".to_owned(),
                ));
            }
        };
        Ok(Options {
            allow_experimental_plugins: self.allow_experimental_plugins,
            default_pool: self.pool.unwrap_or_else(|| "default".to_owned()),
            emit_endpoint_scores: self.emit_endpoint_scores,
            neutral_score_after: self.neutral_score_after,
            avoid_failing: self.avoid_failing,
            epp_rules: self.epp_rules.rules,
            rules,
        })
    }
}
