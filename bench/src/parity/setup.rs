//! The configurations that both pickers run, and the variations of their cases.

use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::manifests::File;

use crate::manifests::Manifests;
use crate::parity::configuration::{self, ROOM, Shape};
use anyhow::{Context, Result, anyhow};
use endpoint_picker::config::PickerConfig;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker_harness::{Filter, tools};
use endpoint_picker_wire::pipeline_into_core;
use serde_json::Value;
use std::net::SocketAddr;
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
    /// Tokens in a block and blocks in the cache, as every server reports; the EPP uses those of any one for
    /// all.
    pub cache: Option<(u32, u32)>,
    /// Variations of the cases, in addition to metrics and prompts.
    pub varies: &'static [Varies],
    /// Cases drawn.
    pub cases: usize,
    /// Purpose of the configuration, if it is drawn from the seed too.
    pub shape: Option<Shape>,
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
    /// Requests name an agent session in one of several headers.
    AgentSessions,
    /// Requests have images of which others have some too.
    Media,
    /// Requests name a profile, which may not be there.
    Profiles,
    /// Servers are named in headers, so a case must leave no choice among equal ones.
    NamedServers,
}

/// Fewer blocks than that, and a full index forgets one block for each new one, as the EPP's does. A greater
/// one forgets many at a time, so not the same ones.
const EXACT: usize = 16;

const PLAIN: Setup =
    Setup { name: "", servers: 4, labels: &[], cache: Some((16, ROOM)), varies: &[], cases: 40, shape: None };

const LONGER: Setup = Setup { cases: 60, ..PLAIN };

/// Servers of two stages in two zones.
const STAGES: &[&[(&str, &str)]] = &[
    &[("llm-d.ai/role", "prefill"), ("kubernetes.io/hostname", "a"), ("topology.kubernetes.io/zone", "1")],
    &[("llm-d.ai/role", "prefill"), ("kubernetes.io/hostname", "b"), ("topology.kubernetes.io/zone", "1")],
    &[("llm-d.ai/role", "prefill"), ("kubernetes.io/hostname", "c"), ("topology.kubernetes.io/zone", "2")],
    &[("llm-d.ai/role", "decode"), ("kubernetes.io/hostname", "a"), ("topology.kubernetes.io/zone", "1")],
    &[("llm-d.ai/role", "decode"), ("kubernetes.io/hostname", "c"), ("topology.kubernetes.io/zone", "2")],
    &[("llm-d.ai/role", "decode"), ("topology.kubernetes.io/zone", "3")],
];

/// Servers of three stages, in places of four levels.
const PLACES: &[&[(&str, &str)]] = &[
    &[
        ("llm-d.ai/role", "prefill"),
        ("kubernetes.io/hostname", "a"),
        ("topology.kubernetes.io/rack", "i"),
        ("topology.kubernetes.io/zone", "1"),
        ("topology.kubernetes.io/region", "x"),
    ],
    &[
        ("llm-d.ai/role", "prefill"),
        ("topology.kubernetes.io/rack", "i"),
        ("topology.kubernetes.io/zone", "1"),
        ("topology.kubernetes.io/region", "x"),
    ],
    &[
        ("llm-d.ai/role", "prefill"),
        ("topology.kubernetes.io/rack", "k"),
        ("topology.kubernetes.io/zone", "1"),
        ("topology.kubernetes.io/region", "x"),
    ],
    &[("llm-d.ai/role", "prefill"), ("topology.kubernetes.io/region", "x")],
    &[("llm-d.ai/role", "encode")],
    &[("llm-d.ai/role", "encode")],
    &[
        ("llm-d.ai/role", "decode"),
        ("kubernetes.io/hostname", "a"),
        ("topology.kubernetes.io/rack", "i"),
        ("topology.kubernetes.io/zone", "1"),
        ("topology.kubernetes.io/region", "x"),
    ],
    &[
        ("llm-d.ai/role", "decode"),
        ("kubernetes.io/hostname", "b"),
        ("topology.kubernetes.io/rack", "k"),
        ("topology.kubernetes.io/zone", "1"),
        ("topology.kubernetes.io/region", "x"),
    ],
];

/// The setups of `make parity`.
pub const SETUPS: &[Setup] = &[
    Setup { name: "default", varies: &[Varies::OddRequests], cases: 200, ..PLAIN },
    Setup { name: "lora", varies: &[Varies::Adapters], cases: 60, ..PLAIN },
    Setup { name: "optimized-baseline", cases: 60, ..PLAIN },
    // Blocks above 64 tokens, so that the minimum of 64 does not hide the size that the servers report.
    Setup { name: "load-aware", cache: Some((128, ROOM)), ..PLAIN },
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
    // So few blocks that servers forget, see [`EXACT`].
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
    Setup { name: "agents", varies: &[Varies::AgentSessions], ..LONGER },
    Setup { name: "attributes", ..LONGER },
    Setup { name: "media", varies: &[Varies::Media], ..LONGER },
    Setup { name: "kv-source", varies: &[Varies::NamedServers], ..LONGER },
    Setup { name: "topology", servers: 6, labels: STAGES, varies: &[Varies::NamedServers], ..LONGER },
    Setup {
        name: "topology-of-decode",
        servers: 6,
        labels: STAGES,
        varies: &[Varies::NamedServers],
        ..LONGER
    },
    Setup {
        name: "drawn",
        servers: 5,
        labels: &[
            &[("tier", "gold"), ("hardware", "new"), ("llm-d.ai/context-length-range", "0-100")],
            &[("tier", "silver"), ("hardware", "new"), ("llm-d.ai/context-length-range", "50-400")],
            &[("hardware", "old"), ("llm-d.ai/context-length-range", "300-300"), ("llm-d.ai/role", "decode")],
            &[("tier", "gold"), ("hardware", "new"), ("llm-d.ai/role", "both")],
        ],
        varies: &[
            Varies::Adapters,
            Varies::AgentSessions,
            Varies::Media,
            Varies::OddRequests,
            Varies::Profiles,
            Varies::Sessions,
            Varies::SessionTokens,
            Varies::Tiers,
        ],
        shape: Some(Shape::Plain),
        ..LONGER
    },
    Setup {
        name: "drawn-stages",
        servers: 8,
        labels: PLACES,
        varies: &[Varies::Media, Varies::NamedServers],
        shape: Some(Shape::Stages),
        ..LONGER
    },
    Setup {
        name: "drawn-ranks",
        varies: &[Varies::Adapters, Varies::NamedServers, Varies::Sessions, Varies::SessionTokens],
        shape: Some(Shape::Ranks),
        ..LONGER
    },
    Setup {
        name: "drawn-queue",
        varies: &[Varies::Adapters, Varies::Media, Varies::Sessions],
        shape: Some(Shape::Queue),
        ..LONGER
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

    /// Whether this form of the filter has its plugins: the wasm filter has no queue.
    pub fn is_for(&self, filter: Filter) -> bool {
        filter == Filter::Native || self.shape != Some(Shape::Queue)
    }

    /// Whether both pickers remember the same of this many blocks: all, or those of an index that is exact.
    pub(crate) fn forgets_alike(&self, blocks: usize) -> bool {
        let room = self.cache.map_or(0, |(_, room)| room as usize);
        room < EXACT || blocks <= room - room / EXACT
    }

    /// Whether endpoints are data-parallel ranks, two of each server.
    pub fn has_ranks(&self) -> bool {
        self.shape == Some(Shape::Ranks)
    }

    /// The address that a server has in our rules and in recordings; where it really listens is up to the
    /// stack that runs it. The first rank of a server is at its primary port.
    pub fn address(&self, server: usize) -> SocketAddr {
        let (host, rank) = if self.has_ranks() { (server / 2, server % 2) } else { (server, 0) };
        let number = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        SocketAddr::from(([10, 0, 0, 1 + number(host)], 8_000 + u16::from(number(rank))))
    }

    fn path(&self) -> PathBuf {
        configs().join(format!("{}.yaml", self.name))
    }
}

/// A setup with the EPP of one version.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The setup.
    pub setup: &'static Setup,
    /// The version's rules.
    pub rules: EppRules,
    manifests: Manifests,
}

impl Comparison {
    /// The setup with the EPP of these rules. A drawn configuration is the same for equal seeds.
    pub fn new(setup: &'static Setup, rules: EppRules, seed: u64) -> Result<Self> {
        let manifests = match setup.shape {
            Some(shape) => Manifests::of_config(configuration::drawn(shape, rules, seed)),
            None => Manifests::read(&setup.path())?,
        };
        Ok(Self { setup, rules, manifests })
    }

    /// The setup with this configuration, which was drawn and recorded.
    pub fn with_config(setup: &'static Setup, rules: EppRules, config: Value) -> Self {
        Self { setup, rules, manifests: Manifests::of_config(config) }
    }

    /// The configuration, if it was drawn.
    pub fn drawn_config(&self) -> Option<Value> {
        self.setup.shape.map(|_| self.manifests.config().clone())
    }

    /// The types of the plugins in the configuration.
    pub fn plugins(&self) -> Vec<&str> {
        let plugins = self.manifests.config()["plugins"].as_array().into_iter().flatten();
        plugins.filter_map(|plugin| plugin["type"].as_str()).collect()
    }

    /// Whether the configuration has a plugin of this type.
    pub(crate) fn has_plugin(&self, name: &str) -> bool {
        self.plugins().contains(&name)
    }

    /// Whether our side gets a configuration. Without one, its default must equal the EPP's document.
    pub(crate) fn has_config(&self) -> bool {
        self.setup.name != "default"
    }

    /// Our rules: the document as the agent reads it.
    pub(crate) fn pipeline(&self) -> Result<Pipeline> {
        if !self.has_config() {
            let config = PickerConfig { epp_rules: self.rules, ..PickerConfig::default() };
            return Ok(Pipeline::compile(config)?);
        }
        let bytes = self.manifests.config().to_string().into_bytes();
        let files = [File { path: Path::new("config.json").into(), bytes }];
        let options = Options {
            allow_experimental_plugins: true,
            default_pool: String::from("default"),
            emit_endpoint_scores: false,
            neutral_score_after: None,
            avoid_failing: Duration::ZERO,
            epp_rules: self.rules,
            rules: None,
        };
        let plan = Plan::read(&files, &options).map_err(|problems| anyhow!("{problems}"))?;
        let mut policy = plan.pools.into_iter().next().context("a pool")?.policy;
        Ok(pipeline_into_core(&mut policy)?)
    }

    /// Writes the document for both pickers, with the place of their endpoints and the primary port of their
    /// servers in it.
    pub(crate) fn write_config(&self, path: &Path, endpoints: &Path, primary_port: u16) -> Result<()> {
        let manifests = self.manifests.clone().with_endpoints(endpoints)?;
        manifests.with_primary_port(primary_port).write_config(path)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_index_that_is_exact_may_be_full() {
        let full = |setup: &str| {
            let setup = Setup::named(setup).expect("a setup");
            setup.forgets_alike(setup.cache.map_or(0, |(_, room)| room as usize))
        };
        assert!(full("prefix-affinity"));
        assert!(!full("default"));
        let setup = Setup { cache: Some((16, 160)), ..PLAIN };
        assert_eq!([150, 151].map(|blocks| setup.forgets_alike(blocks)), [true, false]);
    }
}
