//! How model servers are scraped.

use core::time::Duration;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hyper::Uri;
use rustls::pki_types::ServerName;

use super::error::FlagError;
use super::values::{count, duration, path, server_name};
use crate::catalogue::dialect::MultiEngine;
use crate::catalogue::scraping::{MIN_INTERVAL, Scheme, ScrapeSettings, TextLimits};
use crate::scrape::credentials::{Files, Trust};

/// How model servers are scraped.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scraping of model servers")]
pub(super) struct ScrapeFlags {
    /// Time between two scrapes of one model server, at least 50ms.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    interval: Duration,

    /// Longest time one scrape may take.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    timeout: Duration,

    /// Path, and query if any, of the model servers' metrics.
    #[arg(long, value_name = "PATH", default_value = "/metrics", value_parser = path)]
    metrics_path: Uri,

    /// Whether the metrics are asked for over TLS; https needs --scrape-ca or
    /// --model-server-metrics-https-insecure-skip-verify.
    #[arg(long, value_name = "SCHEME", default_value = "http")]
    model_server_metrics_scheme: SchemeName,

    /// Trust every model server's certificate.
    #[arg(long, conflicts_with = "scrape_ca")]
    model_server_metrics_https_insecure_skip_verify: bool,

    /// Authorities of the model servers' certificates, in PEM. Read again when it changes, as are all files of
    /// certificates, keys and tokens.
    #[arg(long, value_name = "PATH")]
    scrape_ca: Option<PathBuf>,

    /// The name that model servers' certificates must carry; without it each must carry its server's IP address.
    #[arg(long, value_name = "NAME", requires = "scrape_ca", value_parser = server_name)]
    scrape_server_name: Option<ServerName<'static>>,

    /// Certificate chain to show to model servers, in PEM.
    #[arg(long, value_name = "PATH", requires = "scrape_key")]
    scrape_cert: Option<PathBuf>,

    /// Key of --scrape-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "scrape_cert")]
    scrape_key: Option<PathBuf>,

    /// The token to show to model servers (`authorization: Bearer …`).
    #[arg(long, value_name = "PATH")]
    scrape_token_file: Option<PathBuf>,

    /// Largest metrics text that is read; a longer one is a failed scrape.
    #[arg(long, value_name = "BYTES", default_value_t = 4 * 1024 * 1024, value_parser = count)]
    max_metrics_bytes: usize,

    /// Most series of a metrics text; one with more is a failed scrape.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = count)]
    max_metrics_series: usize,

    /// Longest line of a metrics text; a longer one is passed over.
    #[arg(long, value_name = "BYTES", default_value_t = TextLimits::default().line_bytes, value_parser = count)]
    max_metrics_line_bytes: usize,

    /// Most labels of a series; one with more counts as malformed.
    #[arg(long, value_name = "N", default_value_t = TextLimits::default().labels, value_parser = count)]
    max_metrics_labels: usize,

    /// Most engines of a data-parallel server; a value of more is none.
    #[arg(long, value_name = "N", default_value_t = TextLimits::default().engines, value_parser = count)]
    max_metrics_engines: usize,

    /// So many scrapes of an endpoint failed in a row, and it is not ready until one succeeds, as long as others are. Without it
    /// an endpoint that hangs stays a candidate, as in the EPP endpoint picker.
    #[arg(long, value_name = "N")]
    unready_after_failed_scrapes: Option<NonZeroU32>,

    /// How a data-parallel vLLM server, with one series for each engine, is read.
    #[arg(long, value_name = "HOW", default_value = "sum")]
    data_parallel: DataParallel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SchemeName {
    Http,
    Https,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DataParallel {
    /// Waiting and running requests of all engines are added up, KV usage is their mean.
    Sum,
    /// Only the first engine counts, as in the EPP endpoint picker.
    First,
}

impl ScrapeFlags {
    /// An interval that is too short is raised, with a warning, as in the EPP.
    pub(super) fn settings(self) -> Result<(ScrapeSettings, Files), FlagError> {
        if self.interval < MIN_INTERVAL {
            tracing::warn!("--interval {:?} is too short; {MIN_INTERVAL:?} is used", self.interval);
        }
        let trust = match self.scrape_ca {
            Some(authorities) => Some(Trust::Authorities(authorities)),
            None => self.model_server_metrics_https_insecure_skip_verify.then_some(Trust::All),
        };
        if trust.is_none() && self.model_server_metrics_scheme == SchemeName::Https {
            let problem = "--model-server-metrics-scheme https needs --scrape-ca, or \
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
            max_bytes: self.max_metrics_bytes,
            max_series: self.max_metrics_series,
            text: TextLimits {
                line_bytes: self.max_metrics_line_bytes,
                labels: self.max_metrics_labels,
                engines: self.max_metrics_engines,
            },
            unready_after: self.unready_after_failed_scrapes,
            engines: match self.data_parallel {
                DataParallel::Sum => MultiEngine::Sum,
                DataParallel::First => MultiEngine::First,
            },
        };
        let credentials = Files {
            trust,
            certificate_and_key: self.scrape_cert.zip(self.scrape_key),
            server_name: self.scrape_server_name,
            token: self.scrape_token_file,
        };
        Ok((settings, credentials))
    }
}
