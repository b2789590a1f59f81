//! Flags about scraping.

use core::time::Duration;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hyper::Uri;
use metrics_agent_catalogue::dialect::MultiEngine;
use metrics_agent_catalogue::scraping::{MIN_INTERVAL, Scheme, ScrapeSettings};
use metrics_agent_kv_events as kv_events;
use metrics_agent_kv_events::index::Limits;
use metrics_agent_support::client::credentials::{ClientFiles, Trust};
use rustls::pki_types::ServerName;

use super::values::{
    FlagError, KvEventPorts, count, duration, kv_events, path, prefix_tokens, server_name, tokenizer,
};

/// Flags about scraping.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scraping of model servers")]
pub(super) struct ScrapeFlags {
    /// Time between two scrapes of a model server, at least 50ms.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    interval: Duration,

    /// Maximum time for one scrape.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    timeout: Duration,

    /// Path, and query if any, of the model servers' metrics.
    #[arg(long, value_name = "PATH", default_value = "/metrics", value_parser = path)]
    metrics_path: Uri,

    /// Scheme of the scrapes; https requires --scrape-ca or
    /// --model-server-metrics-https-insecure-skip-verify.
    #[arg(long, value_name = "SCHEME", default_value = "http")]
    model_server_metrics_scheme: SchemeName,

    /// Trust every model server's certificate.
    #[arg(long, conflicts_with = "scrape_ca")]
    model_server_metrics_https_insecure_skip_verify: bool,

    /// Authorities of the model servers' certificates, in PEM. Read again when it changes, as are all files
    /// of certificates, keys and tokens.
    #[arg(long, value_name = "PATH")]
    scrape_ca: Option<PathBuf>,

    /// The name in model servers' certificates; by default each server's IP address.
    #[arg(long, value_name = "NAME", requires = "scrape_ca", value_parser = server_name)]
    scrape_server_name: Option<ServerName<'static>>,

    /// Client certificate chain for model servers, in PEM.
    #[arg(long, value_name = "PATH", requires = "scrape_key")]
    scrape_cert: Option<PathBuf>,

    /// Key of --scrape-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "scrape_cert")]
    scrape_key: Option<PathBuf>,

    /// A file with the token for model servers on its first line (`authorization: Bearer …`).
    #[arg(long, value_name = "PATH")]
    scrape_token_file: Option<PathBuf>,

    /// Failed scrapes in a row after which an endpoint is not ready, until one succeeds and as long as other
    /// endpoints are ready. Without it an endpoint that hangs stays a candidate, as in the EPP.
    #[arg(long, value_name = "N")]
    unready_after_failed_scrapes: Option<NonZeroU32>,

    /// How to read a data-parallel server, which has one series for each engine. By default sum, and first
    /// under the EPP's rules (--epp-rules v0.10 or main).
    #[arg(long, value_name = "HOW")]
    data_parallel: Option<DataParallel>,
}

/// Flags about the events of KV caches.
#[derive(Args, Debug)]
#[command(next_help_heading = "KV-cache events of model servers")]
pub(super) struct KvEventFlags {
    /// Follow the contents of each model server's KV caches, by the events that it publishes over ZeroMQ
    /// (vLLM and SGLang: --kv-events-config): discover asks each server for its ports, and PORT or
    /// PORT,REPLAY-PORT is the same for all servers, plus the rank of the endpoint. Events are not encrypted,
    /// not authenticated, and carry the tokens of prompts.
    #[arg(long, value_name = "off|discover|PORT[,REPLAY-PORT]", default_value = "off", value_parser = kv_events)]
    kv_events: KvEventPorts,

    /// Maximum number of cached blocks of all model servers together. Beyond it, the server with the most
    /// loses its oldest ones. A million takes some 200 MB.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = count)]
    max_kv_event_blocks: usize,

    /// The tokenizer of a model, by which cached blocks are known by their text: a folder with
    /// tokenizer.json, tekken.json or tiktoken.model, or such a file. MODEL is a name under which servers
    /// serve it, or the path or name that they have it from. May be repeated. Without it the folder that a
    /// server has it from is used, if it exists here too.
    #[arg(long, value_name = "MODEL=PATH", value_parser = tokenizer)]
    tokenizer: Vec<(String, PathBuf)>,

    /// A model whose cached blocks are known by their token ids, for requests that have these in place of
    /// text. It needs no tokenizer. MODEL is as in --tokenizer, and may have one too. May be repeated.
    #[arg(long, value_name = "MODEL")]
    kv_events_token_ids: Vec<String>,

    /// Tokens of the prefixes that proxies get, from 16 to 256; one of larger blocks has more.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = prefix_tokens)]
    kv_events_node_tokens: u32,
}

impl KvEventFlags {
    /// How events are followed; `None`: they are not.
    pub(super) fn settings(self) -> Option<kv_events::KvEventSettings> {
        let KvEventPorts(ports) = self.kv_events;
        let limits = Limits { blocks: self.max_kv_event_blocks, prefix_tokens: self.kv_events_node_tokens };
        let by_token_ids = self.kv_events_token_ids;
        ports.map(|ports| kv_events::KvEventSettings {
            ports,
            limits,
            tokenizers: self.tokenizer,
            by_token_ids,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SchemeName {
    Http,
    Https,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DataParallel {
    /// Add up waiting and running requests of all engines; use the mean of their KV usage.
    Sum,
    /// Read only the first engine, as the EPP does.
    First,
}

impl ScrapeFlags {
    /// Settings and credentials. An interval that is too short is raised, with a warning, as in the EPP.
    pub(super) fn settings(self) -> Result<(ScrapeSettings, ClientFiles), FlagError> {
        if self.interval < MIN_INTERVAL {
            tracing::warn!("--interval {:?} is too short; {MIN_INTERVAL:?} is used", self.interval);
        }
        let trust = match self.scrape_ca {
            Some(authorities) => Some(Trust::Authorities(authorities)),
            None => self.model_server_metrics_https_insecure_skip_verify.then_some(Trust::All),
        };
        if trust.is_none() && self.model_server_metrics_scheme == SchemeName::Https {
            let problem = "--model-server-metrics-scheme https requires --scrape-ca or \
                           --model-server-metrics-https-insecure-skip-verify";
            return Err(FlagError(problem.to_owned()));
        }
        let settings = ScrapeSettings {
            interval: self.interval.max(MIN_INTERVAL),
            timeout: self.timeout,
            scheme: match self.model_server_metrics_scheme {
                SchemeName::Http => Scheme::Http,
                SchemeName::Https => Scheme::Https,
            },
            path: self.metrics_path,
            unready_after: self.unready_after_failed_scrapes,
            engines: self.data_parallel.map(|how| match how {
                DataParallel::Sum => MultiEngine::Sum,
                DataParallel::First => MultiEngine::First,
            }),
            as_epp: false,
        };
        let credentials = ClientFiles {
            trust,
            certificate_and_key: self.scrape_cert.zip(self.scrape_key),
            server_name: self.scrape_server_name,
            token: self.scrape_token_file,
        };
        Ok((settings, credentials))
    }
}
