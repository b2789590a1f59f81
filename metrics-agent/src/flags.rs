//! What the user writes on the command line, and what the agent makes of it.

mod asking;
mod explain;
mod policy;
mod scraping;
mod serving;
mod values;

use core::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use endpoint_picker::pool::{Endpoint, Pool};

pub use self::asking::AskFlags;
pub use self::explain::ExplainFlags;
pub use self::policy::PolicyFlags;
use self::scraping::ScrapeFlags;
use self::serving::ServeFlags;

use crate::agent::Settings;
use crate::discovery::{LabelLimits, Sources};
use crate::eds::Target;
use crate::manifests::watch;

/// Scrapes model servers and hands the endpoint picker filter in Envoy one consistent snapshot.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Flags {
    /// Something else to do than to run.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Where to answer; with port 0 a free port is taken. The address is printed on standard output.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9095")]
    pub listen: SocketAddr,

    /// What to log on standard error: a level, or directives such as `info,metrics_agent::scrape=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log: String,

    #[command(flatten)]
    policy: PolicyFlags,

    #[command(flatten)]
    serve: ServeFlags,

    #[command(flatten)]
    sources: SourceFlags,

    #[command(flatten)]
    scrape: ScrapeFlags,

    #[command(flatten)]
    eds: EdsFlags,
}

/// What else the agent can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Says what the agent would make of manifests, or all that is wrong with them; then it fails.
    Check {
        /// A file, or a directory of .yaml, .yml and .json files.
        path: PathBuf,

        /// How they are read.
        #[command(flatten)]
        policy: PolicyFlags,
    },

    /// Prints a pool as a table: its endpoints as they are, and what proxies send them.
    Snapshot {
        /// The agent to ask.
        #[command(flatten)]
        ask: AskFlags,

        /// Keep the pool in this file instead, as filters get it: what explain, and this command, read again.
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        save: Option<PathBuf>,

        /// In place of an agent, a file with what one answered to /v1/pools/{pool} or /v1/pools/{pool}/snapshot.
        #[arg(conflicts_with_all = ["agent", "pool"])]
        file: Option<PathBuf>,
    },

    /// Decides a recorded request by a snapshot, as the filter does, and prints why. Ends with 0 if it is routed, with 3 if it
    /// is answered, and with 1 if something cannot be read.
    Explain(ExplainFlags),
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct SourceFlags {
    /// Kubernetes manifests in YAML or JSON, a file or a directory: `InferencePool`, `EndpointPickerConfig`,
    /// `InferenceObjective`, `InferenceModelRewrite` and `InferenceModel`; read again when they change.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,

    /// A model server, an IPv6 address in brackets; may be repeated. Its name is default/IP:PORT.
    #[arg(long = "endpoint", value_name = "IP:PORT", value_parser = values::endpoint)]
    endpoint: Vec<SocketAddr>,

    /// Model servers in the reference endpoint picker's file-discovery format (YAML or JSON); read again when it
    /// changes.
    #[arg(long, value_name = "PATH")]
    endpoints_file: Option<PathBuf>,

    /// Most endpoints of all sources together, and of one pool; more are refused.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..))]
    max_endpoints: u16,

    /// Most labels of an endpoint in the endpoints file.
    #[arg(long, value_name = "N", default_value_t = LabelLimits::default().count, value_parser = values::count)]
    max_endpoint_labels: usize,

    /// Longest value of such a label.
    #[arg(long, value_name = "BYTES", default_value_t = LabelLimits::default().value_bytes, value_parser = values::count)]
    max_label_bytes: usize,
}

#[derive(Args, Debug)]
struct EdsFlags {
    /// A file to keep with a pool's endpoints, for the EDS (`path_config_source`) of Envoy's cluster. With several
    /// pools, `{pool}` in it stands for the pool's name.
    #[arg(long, value_name = "PATH")]
    eds_file: Option<PathBuf>,

    /// The name of Envoy's cluster; `{pool}` in it stands for the pool's name.
    #[arg(long, value_name = "NAME", default_value = "model-servers", requires = "eds_file")]
    eds_cluster: String,
}

impl Flags {
    /// What the agent is to do. An interval that is too short is raised, with a warning, as in the reference.
    pub fn settings(self) -> Result<Settings, FlagError> {
        let Self { policy, serve, sources, scrape, eds, .. } = self;
        let (scrape, scrape_credentials) = scrape.settings()?;
        let options = policy.options()?;
        let name = |address: &SocketAddr| Endpoint::new(format!("default/{address}"), *address, Vec::new());
        let fixed: Vec<_> = sources.endpoint.iter().map(name).collect();
        Pool::new(String::new(), fixed.clone()).map_err(|error| FlagError(format!("--endpoint: {error}")))?;
        Ok(Settings {
            manifests: sources.manifests.map(|path| watch::Settings { path, options: options.clone() }),
            options,
            sources: Sources {
                fixed,
                file: sources.endpoints_file,
                labels: LabelLimits {
                    count: sources.max_endpoint_labels,
                    value_bytes: sources.max_label_bytes,
                },
            },
            scrape,
            scrape_credentials,
            eds: eds.eds_file.map(|path| Target { path, cluster: eds.eds_cluster }),
            max_endpoints: usize::from(sources.max_endpoints),
            max_waiters: serve.max_waiters(),
            limits: serve.limits(),
            credentials: serve.credentials(),
        })
    }
}

/// Flags that do not go together.
#[derive(Debug)]
pub struct FlagError(String);

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FlagError {}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use clap::CommandFactory;

    use super::*;
    use crate::dialect::MultiEngine;
    use crate::scrape::MIN_INTERVAL;

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
    fn the_defaults_are_the_references() {
        let settings = settings("--endpoint 10.0.0.1:8000 --endpoint [2001:db8::1]:8000");
        assert_eq!(settings.scrape.interval, Duration::from_millis(50));
        assert_eq!(settings.scrape.timeout, Duration::from_secs(1));
        assert_eq!(settings.scrape.path, "/metrics");
        assert_eq!(settings.scrape.max_bytes, 4 * 1024 * 1024);
        assert_eq!((settings.options.default_pool.as_str(), settings.max_waiters), ("default", 1024));
        let names: Vec<_> = settings.sources.fixed.iter().map(Endpoint::name).collect();
        assert_eq!(names, ["default/10.0.0.1:8000", "default/[2001:db8::1]:8000"]);
        assert_eq!((settings.scrape.engines, settings.eds), (MultiEngine::Sum, None));
        assert_eq!(settings.scrape.unready_after, None);
    }

    #[test]
    fn a_limit_is_what_its_flag_says() {
        let settings = settings(
            "--endpoint 10.0.0.1:1 --max-manifest-files 1 --max-manifests 2 --max-metrics-engines 3 \
             --max-endpoint-labels 4 --max-label-bytes 5 --max-report-bytes 6 --max-proxies 7",
        );
        let files = settings.options.file_limits;
        assert_eq!((files.manifest_files, files.manifests, settings.scrape.text.engines), (1, 2, 3));
        assert_eq!(settings.sources.labels, LabelLimits { count: 4, value_bytes: 5 });
        assert_eq!((settings.limits.max_report_bytes, settings.limits.max_proxies), (6, 7));
        for flag in ["manifest-files", "manifests", "metrics-engines", "endpoint-labels", "label-bytes"] {
            let refusal = refusal(&format!("--endpoint 10.0.0.1:1 --max-{flag} 0"));
            assert!(refusal.contains(flag) && refusal.contains("allowed is a number from 1 to"), "{refusal}");
        }
    }

    #[test]
    fn the_references_reading_of_a_data_parallel_server_can_be_asked_for() {
        let settings = settings("--endpoint 10.0.0.1:1 --data-parallel=first");
        assert_eq!(settings.scrape.engines, MultiEngine::First);
    }

    /// The long names of a command's flags, and of its subcommands'.
    fn names(command: &clap::Command) -> Vec<String> {
        let own = command.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned);
        own.chain(command.get_subcommands().flat_map(names)).collect()
    }

    #[test]
    fn the_operators_guide_tells_of_every_flag() {
        let guide = include_str!("../../docs/operations.md");
        let names = names(&Flags::command());
        assert!(names.len() > 40, "{names:?}");
        let is_told = |name: &&String| {
            let flag = format!("--{name}");
            guide.match_indices(&flag).any(|(at, flag)| {
                !guide[at + flag.len()..].starts_with(|next: char| next == '-' || next.is_alphanumeric())
            })
        };
        let untold: Vec<_> = names.iter().filter(|name| !is_told(name)).collect();
        assert!(untold.is_empty(), "docs/operations.md says nothing of {untold:?}");
    }

    #[test]
    fn an_interval_below_the_least_is_raised() {
        assert_eq!(settings("--endpoint 10.0.0.1:1 --interval 1ms").scrape.interval, MIN_INTERVAL);
        assert_eq!(settings("--endpoint 10.0.0.1:1 --interval 2s").scrape.interval, Duration::from_secs(2));
    }

    #[test]
    fn some_source_of_endpoints_is_needed() {
        assert!(refusal("").contains("--endpoint"));
        assert!(settings("--endpoints-file x.yaml").sources.fixed.is_empty());
    }

    #[test]
    fn a_refusal_names_the_flag_the_value_and_what_is_allowed() {
        for (flags, parts) in [
            ("--endpoint host:1", ["host:1", "an IP address and a port"]),
            ("--endpoint 10.0.0.1", ["--endpoint", "[2001:db8::1]:8000"]),
            ("--endpoint 10.0.0.1:0", ["--endpoint", "not 0"]),
            ("--endpoint 10.0.0.1:1 --endpoint 10.0.0.1:1", ["--endpoint", "unique"]),
            ("--endpoint 10.0.0.1:1 --interval 5", ["--interval", "1ms to 3600s"]),
            ("--endpoint 10.0.0.1:1 --timeout 0s", ["--timeout", "1ms to 3600s"]),
            ("--endpoint 10.0.0.1:1 --metrics-path metrics", ["--metrics-path", "begins with /"]),
            ("--endpoint 10.0.0.1:1 --data-parallel mean", ["--data-parallel", "first"]),
            ("--endpoint 10.0.0.1:1 --pool=", ["--pool", "allowed"]),
            ("--endpoint 10.0.0.1:1 --eds-cluster x", ["--eds-file", "required"]),
        ] {
            let refusal = refusal(flags);
            for part in parts {
                assert!(refusal.contains(part), "{flags}: {refusal:?} lacks {part:?}");
            }
        }
    }
}
