//! Reads manifest files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::problem::{Problem, Problems};
use crate::files::FileLimits;

/// Most bytes of all files together, as a multiple of the limit on one file.
pub const MAX_FULL_FILES: usize = 4;

/// Extensions of the files in a directory that are read.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One file and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: Arc<Path>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Reads a file, or the `.yaml`, `.yml` and `.json` files of a directory in the order of their names. Hidden files and
/// subdirectories are skipped, so a mounted `ConfigMap` can be read as it is.
pub fn read(path: &Path, limits: FileLimits) -> Result<Vec<File>, Problems> {
    let is_directory =
        std::fs::metadata(path).map_err(|error| Problems::from(unreadable(path, &error)))?.is_dir();
    let paths = if is_directory { files_of(path, limits.manifest_files)? } else { vec![path.to_owned()] };
    let (mut files, mut problems, mut total) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        match limits.read(&path) {
            Ok(bytes) => {
                total += bytes.len();
                files.push(File { path: path.into(), bytes });
            }
            Err(error) => problems.push(Problem::of_file(&path, error.to_string())),
        }
    }
    let max = limits.bytes.saturating_mul(MAX_FULL_FILES);
    if total > max {
        let text = format!("has {total} bytes; allowed are {max}, {MAX_FULL_FILES} times --max-file-bytes");
        problems.push(Problem::of_file(path, text));
    }
    if problems.is_empty() { Ok(files) } else { Err(Problems(problems)) }
}

fn files_of(directory: &Path, max: usize) -> Result<Vec<PathBuf>, Problems> {
    let fails = |error| Problems::from(unreadable(directory, &error));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fails)? {
        let path = entry.map_err(fails)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let named = path.extension().is_some_and(|end| EXTENSIONS.iter().any(|extension| end == *extension));
        if named && !hidden && !path.is_dir() {
            paths.push(path);
        }
        if paths.len() > max {
            let text = format!("has more than the allowed {max} files (--max-manifest-files)");
            return Err(Problem::of_file(directory, text).into());
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Problem::of_file(
            directory,
            "has no .yaml, .yml or .json file; at least one is required",
        )
        .into());
    }
    Ok(paths)
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::of_file(path, format!("cannot be read: {error}"))
}
