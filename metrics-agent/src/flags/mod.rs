//! The command line, and the settings that it gives.

mod explain;
mod extension;
mod policy;
mod record;
mod replay;
mod scraping;
mod serving;
mod sources;
mod values;

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
pub use explain::{AgentFlags, PoolFlags};
use hyper::Uri;
use metrics_agent_catalogue::watch;
use metrics_agent_gateway::ownership::Ownership;
use metrics_agent_sources::kubernetes::{ClusterSettings, WatchedServices};
use serving::ShareFlags;
pub use sources::KubernetesFlags;
use sources::ObjectReportFlags;
pub use values::FlagError;

pub use self::explain::ExplainFlags;
use self::extension::ExtensionFlags;
pub use self::policy::PolicyFlags;
use self::record::RecordFlags;
pub use self::replay::ReplayFlags;
use self::scraping::{KvEventFlags, ScrapeFlags};
use self::serving::ServeFlags;
use self::sources::{EdsFlags, EndpointLimits, SourceFlags};
use crate::agent::Settings;
use crate::publish::eds::Target;

/// Scrapes model servers and hands the endpoint picker filter in Envoy one consistent snapshot.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Flags {
    /// A subcommand; without one, the agent runs.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The address of the agent's API; port 0 means any free port. The address is printed on standard output.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9095")]
    pub listen: SocketAddr,

    /// A further address, for /healthz and /readyz alone, in plain HTTP and with connections of its own:
    /// clients of the API cannot keep health checks from being answered. The address is printed as well.
    #[arg(long, value_name = "IP:PORT")]
    pub listen_health: Option<SocketAddr>,

    /// The log level on standard error, or directives such as `info,metrics_agent::scrape=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log: String,

    /// Threads for scraping and the API. Use more than one only if one is always busy: threads wake one
    /// another, and a scrape then takes up to 1.4 times the processor time.
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroU8,

    #[command(flatten)]
    sources: SourceFlags,

    #[command(flatten)]
    kubernetes: KubernetesFlags,

    #[command(flatten)]
    object_reports: ObjectReportFlags,

    #[command(flatten)]
    policy: PolicyFlags,

    #[command(flatten)]
    endpoints: EndpointLimits,

    #[command(flatten)]
    scrape: ScrapeFlags,

    #[command(flatten)]
    kv_events: KvEventFlags,

    #[command(flatten)]
    eds: EdsFlags,

    #[command(flatten)]
    share: ShareFlags,

    #[command(flatten)]
    record: RecordFlags,

    #[command(flatten)]
    serve: ServeFlags,

    #[command(flatten)]
    extension: ExtensionFlags,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Checks manifests: prints a summary of the pools, or all problems and exit code 1.
    Check {
        /// A file, or a directory of .yaml, .yml and .json files.
        #[arg(required_unless_present = "cluster", conflicts_with = "cluster")]
        path: Option<PathBuf>,

        /// Check a Kubernetes cluster: what would be in force and what would be refused, and what differs
        /// from the EPP of each pool. The API server is the one of KUBECONFIG, otherwise of the pod's
        /// `ServiceAccount`, otherwise of ~/.kube/config.
        #[arg(long)]
        cluster: bool,

        /// Check Envoy Gateway in this namespace, too: whether it has the agents as its extension server, as
        /// docs/install/envoy-gateway.md has it, and whether routes to pools are served. Its configuration,
        /// the two Secrets that the configuration names, routes and pools are read.
        #[arg(long, value_name = "NAMESPACE", requires = "cluster", value_parser = values::one_namespace)]
        envoy_gateway: Option<String>,

        /// The cluster's objects.
        #[command(flatten)]
        kubernetes: KubernetesFlags,

        /// Options for reading the manifests.
        #[command(flatten)]
        policy: PolicyFlags,
    },

    /// Prints a pool as a table: its endpoints with their state and load, and its proxies.
    Snapshot {
        /// The pool.
        #[command(flatten)]
        source: PoolFlags,

        /// Save the pool's snapshot to this file instead, for explain and for this command.
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        save: Option<PathBuf>,

        /// A recorded response to /v1/pools/{pool} or /v1/pools/{pool}/snapshot, instead of an agent.
        #[arg(conflicts_with_all = ["agent", "pool"])]
        file: Option<PathBuf>,
    },

    /// Decides a recorded request by a snapshot, as the filter does, and prints the reasons, and the decision
    /// of a shadow configuration if there is one. Exit codes: 0 if the request is routed, 3 if it is not, 1
    /// if an input cannot be read.
    Explain(ExplainFlags),

    /// Replays recorded requests in simulated time: fits servers to the record, and compares rules on them
    /// with each other, with the record and with a picker that knows everything but the future.
    Replay(ReplayFlags),

    /// Reads the configuration and the statistics of a running Envoy, and the agent's pools, and prints each
    /// mistake that keeps requests from the endpoints that the picker chooses, with its fix. Exit codes: 0 if
    /// there is none, 1 if there is one or an input cannot be read.
    Doctor {
        /// Envoy's admin interface, as a URL, or as HOST:PORT.
        #[arg(long, value_name = "URL|HOST:PORT", value_parser = values::admin)]
        envoy_admin: Uri,

        /// The agent to read from.
        #[command(flatten)]
        agent: AgentFlags,
    },
}

impl Flags {
    /// The agent's settings. An interval that is too short is raised, with a warning, as in the EPP.
    pub fn settings(self) -> Result<Settings, FlagError> {
        let Self {
            sources,
            kubernetes,
            object_reports,
            mut policy,
            endpoints,
            scrape,
            kv_events,
            eds,
            share,
            record,
            serve,
            extension,
            ..
        } = self;
        let (scrape, scrape_credentials) = scrape.settings()?;
        if !sources.kubernetes() {
            kubernetes.refuse("--kubernetes")?;
        }
        let only_pool = policy.only_pool().map(str::to_owned);
        let eds = eds.target();
        let has_file_per_pool = eds.as_ref().is_none_or(Target::has_file_per_pool);
        if sources.kubernetes() && only_pool.is_none() && !has_file_per_pool {
            let text = "--eds-file has no {pool}, which --kubernetes requires for several pools; --pool names the only one";
            return Err(FlagError(text.to_owned()));
        }
        let share = share.share()?;
        let manifests = match (sources.manifests(), policy.take_rules_file()) {
            (Some(_), Some(_)) => {
                let text = "--rules with a file and --manifests exclude each other: put the file into the folder of --manifests";
                return Err(FlagError(text.to_owned()));
            }
            (manifests, rules) => manifests.or(rules),
        };
        let options = policy.options()?;
        let max_endpoints = endpoints.max_endpoints();
        let extension = extension.settings()?;
        let routes = extension.as_ref().map(|server| match &server.hooks.ownership {
            Ownership { all: true, .. } => WatchedServices::All,
            Ownership { services, .. } => WatchedServices::Named(services.clone()),
        });
        let cluster =
            |kubernetes: KubernetesFlags| ClusterSettings { routes, ..kubernetes.settings(max_endpoints) };
        Ok(Settings {
            only_pool,
            object_reports: object_reports.reports(),
            kubernetes: sources.kubernetes().then(|| cluster(kubernetes)),
            manifests: manifests.map(|path| watch::ManifestSettings { path, options: options.clone() }),
            options,
            sources: sources.sources()?,
            scrape,
            scrape_credentials,
            eds,
            max_endpoints,
            max_waiters: serve.max_waiters(),
            share,
            record: record.settings(),
            limits: serve.limits(),
            allowed_hosts: serve.allowed_hosts(),
            credentials: serve.credentials(),
            kv_events: kv_events.settings(),
            extension,
        })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use clap::CommandFactory;
    use endpoint_picker::pool::Endpoint;
    use endpoint_picker_engine::static_pool::AVOID_FAILING;
    use endpoint_picker_wire::NamedRules;
    use metrics_agent_catalogue::dialect::MultiEngine;
    use metrics_agent_catalogue::scraping::MIN_INTERVAL;
    use metrics_agent_gateway::object_reports::ObjectReports;
    use metrics_agent_gateway::object_reports::status::Parent;
    use metrics_agent_sources::endpoints::Declared;
    use metrics_agent_sources::kubernetes::Namespaces;

    use super::*;

    fn settings(flags: &str) -> Settings {
        let arguments = core::iter::once("metrics-agent").chain(flags.split_whitespace());
        Flags::try_parse_from(arguments).unwrap().settings().unwrap()
    }

    fn refusal(flags: &str) -> String {
        let arguments = core::iter::once("metrics-agent").chain(flags.split_whitespace());
        match Flags::try_parse_from(arguments) {
            Ok(flags) => flags.settings().expect_err("refused").to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_defaults_are_the_epps_but_for_the_rules() {
        let settings = settings("--endpoint 10.0.0.1:8000 --endpoint [2001:db8::1]:8000");
        assert_eq!(settings.scrape.interval, Duration::from_millis(50));
        assert_eq!(settings.scrape.timeout, Duration::from_secs(1));
        assert_eq!(settings.scrape.path, "/metrics");
        assert_eq!((settings.options.default_pool.as_str(), settings.max_waiters), ("default", 1024));
        let names: Vec<_> = settings.sources.fixed.endpoints.iter().map(Endpoint::name).collect();
        assert_eq!(names, ["default/10.0.0.1:8000", "default/[2001:db8::1]:8000"]);
        assert_eq!((settings.scrape.text_rules().engines, settings.eds), (MultiEngine::Sum, None));
        assert_eq!(settings.scrape.unready_after, None);
        assert_eq!((settings.options.rules, settings.manifests.is_none()), (None, true));
        assert_eq!(settings.options.avoid_failing, AVOID_FAILING, "of a pool without an agent too");
    }

    #[test]
    fn rules_have_a_name_or_a_file() {
        let with = |rules: &str| settings(&format!("--endpoint 10.0.0.1:1 --rules {rules}"));
        assert_eq!(with("epp").options.rules, Some(NamedRules::Epp));
        assert_eq!(with("expected-latency").options.rules, Some(NamedRules::ExpectedLatency));
        for file in ["rules.yaml", "/etc/rules", "./epp", "x.json"] {
            let settings = with(file);
            assert_eq!((settings.options.rules, settings.manifests.unwrap().path), (None, file.into()));
        }
    }

    #[test]
    fn an_endpoint_may_have_a_host_name() {
        let fixed = settings("--endpoint vllm-1:8000 --endpoint 10.0.0.1:1 --endpoint VLLM-2.example.:80")
            .sources
            .fixed;
        assert_eq!(fixed.endpoints.len(), 1);
        let named = fixed
            .named
            .iter()
            .map(|server| (server.name.as_str(), server.host.as_str(), server.port.unwrap().get()));
        let expected =
            [("default/vllm-1:8000", "vllm-1", 8000), ("default/vllm-2.example.:80", "vllm-2.example.", 80)];
        assert_eq!(named.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn flags_set_limits() {
        let settings = settings(
            "--endpoint 10.0.0.1:1 --max-endpoints 5 --max-proxies 6 --max-connections 7 --max-connections-per-peer 8",
        );
        assert_eq!((settings.max_endpoints, settings.limits.max_proxies), (5, 6));
        assert_eq!((settings.limits.max_connections, settings.limits.max_connections_per_peer), (7, 8));
        assert_eq!(settings.max_waiters, 4, "half of the connections");
        let refusal = refusal("--endpoint 10.0.0.1:1 --max-proxies 0");
        assert!(refusal.contains("--max-proxies") && refusal.contains("a number from 1 to"), "{refusal}");
    }

    #[test]
    fn a_flag_reads_only_the_first_engine_as_the_epp_does() {
        let settings = settings("--endpoint 10.0.0.1:1 --data-parallel=first");
        assert_eq!(settings.scrape.text_rules().engines, MultiEngine::First);
    }

    #[test]
    fn flags_about_rights_contradict_each_other_with_a_message() {
        let with = |more: &str| refusal(&format!("--endpoint 10.0.0.1:1 {more}"));
        for (flags, named) in [
            ("--read-token-file r", "--bearer-token-file"),
            ("--bearer-token-file w --read-token-file r --allow-unauthenticated-reads", "--read-token-file"),
            ("--bearer-token-file w --allow-unauthenticated-writes", "--bearer-token-file"),
            ("--tls-cert c --tls-key k --tls-client-ca a --allow-unauthenticated-writes", "--tls-client-ca"),
        ] {
            assert!(with(flags).contains(named), "{}", with(flags));
        }
    }

    /// The long names of a command's flags, and of its subcommands'.
    fn names(command: &clap::Command) -> Vec<String> {
        let own = command.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned);
        own.chain(command.get_subcommands().flat_map(names)).collect()
    }

    #[test]
    fn the_operators_guide_has_every_flag() {
        let guide = [
            include_str!("../../../docs/reference/agent.md"),
            include_str!("../../../docs/reference/agent-kubernetes.md"),
            include_str!("../../../docs/reference/agent-kv-cache-events.md"),
            include_str!("../../../docs/reference/agent-limits.md"),
        ]
        .concat();
        let names = names(&Flags::command());
        assert!(names.len() > 40, "{names:?}");
        let is_documented = |name: &&String| {
            let flag = format!("--{name}");
            guide.match_indices(&flag).any(|(at, flag)| {
                !guide[at + flag.len()..].starts_with(|next: char| next == '-' || next.is_alphanumeric())
            })
        };
        let missing: Vec<_> = names.iter().filter(|name| !is_documented(name)).collect();
        assert!(missing.is_empty(), "docs/reference/agent*.md lack {missing:?}");
    }

    #[test]
    fn a_cluster_is_watched_in_the_given_namespaces() {
        let watched = |flags: &str| settings(&format!("--kubernetes {flags}")).kubernetes.unwrap();
        assert_eq!((watched("").namespaces, watched("").picker_config_map), (None, None));
        let two = watched("--kubernetes-namespace b --kubernetes-namespace a --kubernetes-namespace b");
        assert_eq!(two.namespaces, Some(Namespaces::Named(["a", "b"].map(str::to_owned).into())));
        let all = watched("--kubernetes-namespace a --kubernetes-namespace *");
        assert_eq!(all.namespaces, Some(Namespaces::All));
        let config_map = |flag: &str| watched(&format!("--picker-config-map {flag}")).picker_config_map;
        assert_eq!(config_map("picker"), Some((None, "picker".to_owned())));
        assert_eq!(config_map("a/picker.v2"), Some((Some("a".to_owned()), "picker.v2".to_owned())));
        assert!(watched("--base-model-config-maps").base_models && !watched("").base_models);
        let reports =
            settings("--kubernetes --kubernetes-events --kubernetes-status edge/gateway").object_reports;
        let parent = Parent { namespace: Some("edge".to_owned()), name: "gateway".to_owned() };
        assert_eq!(reports, ObjectReports { events: true, status: Some(parent) });
        assert_eq!(settings("--kubernetes").object_reports, ObjectReports::default());
        assert_eq!(watched("--max-endpoints 3").max_pods, 3);
        assert_eq!(settings("--endpoint 10.0.0.1:1").kubernetes, None);
    }

    #[test]
    fn an_interval_below_the_minimum_is_raised() {
        assert_eq!(settings("--endpoint 10.0.0.1:1 --interval 1ms").scrape.interval, MIN_INTERVAL);
        assert_eq!(settings("--endpoint 10.0.0.1:1 --interval 2s").scrape.interval, Duration::from_secs(2));
    }

    #[test]
    fn a_source_of_endpoints_is_required() {
        assert!(refusal("").contains("--endpoint"));
        assert!(refusal("--max-endpoints 5").contains("required"), "a limit is not a source");
        assert_eq!(settings("--endpoints-file x.yaml").sources.fixed, Declared::default());
    }

    #[test]
    fn a_refusal_has_the_flag_the_value_and_what_is_allowed() {
        for (flags, parts) in [
            ("--endpiont 10.0.0.1:1", ["a similar argument exists", "'--endpoint'"]),
            ("docter", ["a similar subcommand exists", "'doctor'"]),
            ("doctor", ["--envoy-admin", "required"]),
            ("doctor --envoy-admin https://127.0.0.1:9901", ["--envoy-admin", "http://127.0.0.1:9901"]),
            ("--endpoint host:x", ["host:x", "an IP address or a host name, and a port"]),
            ("--endpoint host", ["host", "vllm-1:8000"]),
            ("--endpoint 10.0.0.300:1", ["10.0.0.300:1", "vllm-1:8000"]),
            ("--endpoint http://host:1", ["http://host:1", "vllm-1:8000"]),
            ("--endpoint host:1 --endpoint HOST:1", ["--endpoint", "unique"]),
            ("--endpoint 10.0.0.1", ["--endpoint", "[2001:db8::1]:8000"]),
            ("--endpoint 10.0.0.1:0", ["--endpoint", "not 0"]),
            ("--endpoint 10.0.0.1:1 --endpoint 10.0.0.1:1", ["--endpoint", "unique"]),
            ("--endpoint 10.0.0.1:1 --interval 5", ["--interval", "1ms to 3600s"]),
            ("--endpoint 10.0.0.1:1 --timeout 0s", ["--timeout", "1ms to 3600s"]),
            ("--endpoint 10.0.0.1:1 --metrics-path metrics", ["--metrics-path", "must start with '/'"]),
            ("--endpoint 10.0.0.1:1 --data-parallel mean", ["--data-parallel", "first"]),
            (
                "--endpoint 10.0.0.1:1 --kv-events on",
                ["--kv-events", "off, discover, PORT or PORT,REPLAY-PORT"],
            ),
            ("--endpoint 10.0.0.1:1 --kv-events 5557,0", ["--kv-events", "from 1 to 65535"]),
            ("--endpoint 10.0.0.1:1 --kv-events 5557,5557", ["--kv-events", "different"]),
            ("--endpoint 10.0.0.1:1 --max-kv-event-blocks 0", ["--max-kv-event-blocks", "1"]),
            ("--endpoint 10.0.0.1:1 --tokenizer /models/qwen", ["--tokenizer", "a model and a folder"]),
            (
                "--endpoint 10.0.0.1:1 --kv-events-node-tokens 8",
                ["--kv-events-node-tokens", "from 16 to 256"],
            ),
            ("--endpoint 10.0.0.1:1 --pool=", ["--pool", "allowed"]),
            ("--endpoint 10.0.0.1:1 --rules lmetric", ["--rules", "expected-latency, epp, and a file"]),
            ("--endpoint 10.0.0.1:1 --record-sample 0.1", ["--record", "required"]),
            ("--endpoint 10.0.0.1:1 --record r --record-sample 1.5", ["--record-sample", "from 0 to 1"]),
            ("--endpoint 10.0.0.1:1 --record r --record-max-bytes 1", ["--record-max-bytes", "65536"]),
            ("--manifests m --rules rules.yaml", ["--rules", "the folder of --manifests"]),
            ("--endpoint 10.0.0.1:1 --share yes", ["--share", "allowed is off, agent, or URLs"]),
            ("--endpoint 10.0.0.1:1 --share redis://a,redis://b", ["--share-cluster", "--share-sentinel"]),
            (
                "--endpoint 10.0.0.1:1 --share agent --share-cluster",
                ["--share-cluster", "require --share with URLs"],
            ),
            ("--endpoint 10.0.0.1:1 --eds-cluster x", ["--eds-file", "required"]),
            ("--kubernetes --eds-file x.json", ["{pool}", "--pool"]),
            ("--kubernetes --pool a/b/c", ["--pool", "NAMESPACE/NAME"]),
            ("--endpoint 10.0.0.1:1 --kubernetes-events", ["--kubernetes", "required"]),
            ("check --cluster m.yaml", ["--cluster", "cannot be used"]),
            (
                "--endpoint 10.0.0.1:1 --kubernetes-namespace x",
                ["--kubernetes-namespace", "requires --kubernetes"],
            ),
            ("--endpoint 10.0.0.1:1 --picker-config-map x", ["--picker-config-map", "requires --kubernetes"]),
            (
                "--endpoint 10.0.0.1:1 --base-model-config-maps",
                ["--base-model-config-maps", "requires --kubernetes"],
            ),
            ("--kubernetes --kubernetes-namespace a.b", ["--kubernetes-namespace", "name of a namespace"]),
            ("--kubernetes --kubernetes-namespace=", ["--kubernetes-namespace", "name of a namespace"]),
            ("--kubernetes --picker-config-map a/b/c", ["--picker-config-map", "NAMESPACE/NAME"]),
            ("--kubernetes --picker-config-map /b", ["--picker-config-map", "NAMESPACE/NAME"]),
        ] {
            let refusal = refusal(flags);
            for part in parts {
                assert!(refusal.contains(part), "{flags}: {refusal:?} lacks {part:?}");
            }
        }
    }
}
