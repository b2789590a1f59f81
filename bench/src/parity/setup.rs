//! The configurations that both pickers run, and the variations of their cases.

use crate::manifests::Manifests;
use anyhow::{Context, Result, anyhow};
use endpoint_picker::config::PickerConfig;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_harness::tools;
use endpoint_picker_wire::picker_config_into_core;
use metrics_agent::catalogue::{Options, Plan};
use metrics_agent::files::FileLimits;
use metrics_agent::sources::manifests;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A configuration and the cases that put it to the test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its name, that of its `EndpointPickerConfig` and that of its recording.
    pub name: &'static str,
    /// Model servers.
    pub servers: usize,
    /// Every server's labels; the last ones may have none.
    pub labels: &'static [&'static [(&'static str, &'static str)]],
    /// Tokens in a block and blocks in the cache, as every server reports; the EPP uses those of any one for all.
    pub cache: Option<(u32, u32)>,
    /// Variations of the cases, beside metrics and prompts.
    pub varies: &'static [Varies],
    /// Cases drawn.
    pub cases: usize,
}

/// A variation of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varies {
    /// Unusual paths, bodies and hints.
    OddRequests,
    /// Bodies of every API with everything that prompts are made of.
    Apis,
    /// Servers have adapters, and requests ask for them.
    Adapters,
    /// Servers are at work on other requests.
    Held,
    /// Requests carry the token of a session, which names an endpoint.
    SessionTokens,
    /// Requests name their session.
    Sessions,
    /// Requests ask for a tier in a header.
    Tiers,
}

const PLAIN: Setup =
    Setup { name: "", servers: 4, labels: &[], cache: Some((16, 100)), varies: &[], cases: 40 };

/// The setups of `make parity`.
pub const SETUPS: &[Setup] = &[
    Setup { name: "default", varies: &[Varies::OddRequests], cases: 200, ..PLAIN },
    Setup { name: "lora", varies: &[Varies::Adapters], cases: 60, ..PLAIN },
    Setup { name: "optimized-baseline", cases: 60, ..PLAIN },
    // Blocks above 64 tokens, so that the minimum of 64 does not hide the size that the servers report.
    Setup { name: "load-aware", cache: Some((128, 60)), ..PLAIN },
    Setup {
        name: "filters",
        servers: 5,
        labels: &[
            &[("zone", "a"), ("hardware", "new")],
            &[("zone", "b"), ("hardware", "new")],
            &[("zone", "a"), ("hardware", "old")],
            &[("zone", "c")],
        ],
        cases: 60,
        ..PLAIN
    },
    Setup { name: "payload-agnostic", varies: &[Varies::Held, Varies::SessionTokens], ..PLAIN },
    Setup { name: "in-flight", varies: &[Varies::Held], ..PLAIN },
    // So few blocks that servers forget.
    Setup { name: "prefix-affinity", cache: Some((16, 14)), cases: 60, ..PLAIN },
    Setup { name: "sessions", varies: &[Varies::Sessions], cases: 60, ..PLAIN },
    // The range is wide enough that every token shows in the score.
    Setup {
        name: "apis",
        labels: &[
            &[("llm-d.ai/context-length-range", "0-20000")],
            &[("llm-d.ai/context-length-range", "0-30000")],
            &[("llm-d.ai/context-length-range", "0-40000")],
        ],
        varies: &[Varies::Apis],
        cases: 76,
        ..PLAIN
    },
    Setup {
        name: "labels",
        servers: 5,
        labels: &[
            &[("llm-d.ai/context-length-range", "0-100"), ("tier", "gold")],
            &[("llm-d.ai/context-length-range", "50-400"), ("tier", "silver")],
            &[("llm-d.ai/context-length-range", "300-300")],
            &[("llm-d.ai/context-length-range", "many"), ("tier", "gold")],
        ],
        varies: &[Varies::Tiers],
        ..PLAIN
    },
];

impl Setup {
    /// The setup of this name.
    pub fn named(name: &str) -> Result<&'static Self> {
        SETUPS.iter().find(|setup| setup.name == name).with_context(|| {
            let names: Vec<&str> = SETUPS.iter().map(|setup| setup.name).collect();
            format!("no setup is called {name:?}; there are {}", names.join(", "))
        })
    }

    /// Whether cases vary this.
    pub fn varies(&self, what: Varies) -> bool {
        self.varies.contains(&what)
    }

    /// An endpoint's name.
    pub fn endpoint_name(server: usize) -> String {
        format!("server-{server}")
    }

    /// An endpoint's labels.
    pub fn labels(&self, server: usize) -> Vec<(String, String)> {
        let labels = self.labels.get(server).copied().unwrap_or_default();
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Whether our side gets a configuration. Without one, its default must equal the EPP's document.
    pub(crate) fn has_config(&self) -> bool {
        self.name != "default"
    }

    /// The configuration of our rules: the document as the agent reads it.
    pub(crate) fn picker_config(&self) -> Result<PickerConfig> {
        if !self.has_config() {
            return Ok(PickerConfig::default());
        }
        let files =
            manifests::read(&self.path(), FileLimits::default()).map_err(|problems| anyhow!("{problems}"))?;
        let options = Options {
            allow_experimental_plugins: true,
            default_pool: String::from("default"),
            emit_endpoint_scores: false,
            neutral_score_after: None,
            avoid_failing: Duration::ZERO,
            epp_rules: EppRules::default(),
            file_limits: FileLimits::default(),
        };
        let plan = Plan::read(&files, &options).map_err(|problems| anyhow!("{problems}"))?;
        let pool = plan.pools.into_iter().next();
        let config = pool.and_then(|pool| pool.policy.picker_config).context("a picker configuration")?;
        Ok(picker_config_into_core(config)?)
    }

    /// Writes the document for both pickers, with the place of their endpoints in it.
    pub fn write_config(&self, path: &Path, endpoints: &Path) -> Result<()> {
        Manifests::read(&self.path())?.with_endpoints(endpoints)?.write_config(path)
    }

    fn path(&self) -> PathBuf {
        configs().join(format!("{}.yaml", self.name))
    }
}

/// Where configurations are.
pub fn configs() -> PathBuf {
    folder().join("configs")
}

/// Where configurations and recordings are.
pub(crate) fn folder() -> PathBuf {
    tools::root().join("bench/parity")
}
