//! How manifests are read, by the agent and by its check.

use core::time::Duration;

use clap::Args;

use super::error::FlagError;
use super::values;
use crate::catalogue::Options;
use crate::files::FileLimits;

/// How manifests are read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Pools and policies")]
pub struct PolicyFlags {
    /// The name by which the filter asks for the pool, when no manifest says which pools there are.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pool: String,

    /// Allow plugins that the EPP endpoint picker calls alpha.
    #[arg(long)]
    allow_experimental_plugins: bool,

    /// Tell the filters behind the picker the score of every rated endpoint.
    #[arg(long)]
    emit_endpoint_scores: bool,

    /// Age of metrics from which scorers have no opinion of an endpoint, 2s for example; also of one never scraped. Without
    /// it the last values count, and none as idle, as in the EPP endpoint picker.
    #[arg(long, alias = "no-opinion-after", value_name = "TIME", value_parser = values::duration)]
    neutral_score_after: Option<Duration>,

    /// For how long an endpoint that fails a request is left alone while there are others; twice as long with each further
    /// failure, up to eight times. 0s: not at all, as the EPP does it.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = values::duration_or_none)]
    avoid_failing: Duration,

    /// Largest file that is read: the endpoints file, each manifest, each file of certificates, keys or tokens. All manifests
    /// together may have four times as many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = FileLimits::default().bytes, value_parser = values::count)]
    max_file_bytes: usize,

    /// Most nodes of YAML in a file: maps, lists and values.
    #[arg(long, value_name = "N", default_value_t = FileLimits::default().yaml_nodes, value_parser = values::count)]
    max_yaml_nodes: usize,

    /// Most manifest files in a directory.
    #[arg(long, value_name = "N", default_value_t = FileLimits::default().manifest_files, value_parser = values::count)]
    max_manifest_files: usize,

    /// Most manifests in all files together; each item of a list counts.
    #[arg(long, value_name = "N", default_value_t = FileLimits::default().manifests, value_parser = values::count)]
    max_manifests: usize,
}

impl PolicyFlags {
    /// What the flags mean for manifests.
    pub fn options(self) -> Result<Options, FlagError> {
        if self.pool.is_empty() {
            return Err(FlagError("--pool is empty; allowed is any other name".to_owned()));
        }
        Ok(Options {
            allow_experimental_plugins: self.allow_experimental_plugins,
            default_pool: self.pool,
            emit_endpoint_scores: self.emit_endpoint_scores,
            neutral_score_after: self.neutral_score_after,
            avoid_failing: self.avoid_failing,
            file_limits: FileLimits {
                bytes: self.max_file_bytes,
                yaml_nodes: self.max_yaml_nodes,
                manifest_files: self.max_manifest_files,
                manifests: self.max_manifests,
            },
        })
    }
}
