//! `metrics-agent check`: checks manifests, or a cluster, and prints a summary.

pub mod cluster;
mod summary;

use std::path::Path;

use crate::catalogue::{Options, Plan, Problems};
use crate::commands::columns::counted;
use crate::sources::manifests;

/// A summary of the manifests, or all their problems.
pub fn check(path: &Path, options: &Options) -> Result<String, Problems> {
    let files = manifests::read(path, options.file_limits)?;
    let plan = Plan::read(&files, options)?;
    let (documents, files) = (counted(plan.documents, "document"), counted(files.len(), "file"));
    let mut text = format!("valid: {documents} in {files}\n");
    summary::add(&mut text, &plan);
    Ok(text)
}
