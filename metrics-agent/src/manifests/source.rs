//! The manifest files.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::problem::{Problem, Problems};

/// Largest file.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Most files of a directory.
pub const MAX_FILES: usize = 256;

/// Most bytes of all files together.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Ends of the names that count in a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One file and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: Arc<Path>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Reads a file, or the `.yaml`, `.yml` and `.json` files of a directory in the order of their names. Hidden files and
/// directories within it do not count, so a mounted `ConfigMap` can be read as it is.
pub fn read(path: &Path) -> Result<Vec<File>, Problems> {
    let is_directory =
        std::fs::metadata(path).map_err(|error| Problems::from(unreadable(path, &error)))?.is_dir();
    let paths = if is_directory { files_of(path)? } else { vec![path.to_owned()] };
    let (mut files, mut problems, mut total) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        match read_file(&path) {
            Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => {
                problems.push(Problem::of_file(
                    &path,
                    format!("is larger than the allowed {MAX_FILE_BYTES} bytes"),
                ));
            }
            Ok(bytes) => {
                total += bytes.len();
                files.push(File { path: path.into(), bytes });
            }
            Err(error) => problems.push(unreadable(&path, &error)),
        }
    }
    if total > MAX_BYTES {
        problems.push(Problem::of_file(path, format!("holds {total} bytes; allowed are {MAX_BYTES}")));
    }
    if problems.is_empty() { Ok(files) } else { Err(Problems(problems)) }
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, Problems> {
    let fails = |error| Problems::from(unreadable(directory, &error));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fails)? {
        let path = entry.map_err(fails)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let named = path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known));
        if named && !hidden && !path.is_dir() {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            let text = format!("holds more than the allowed {MAX_FILES} files");
            return Err(Problem::of_file(directory, text).into());
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Problem::of_file(
            directory,
            "holds no .yaml, .yml or .json file; at least one is required",
        )
        .into());
    }
    Ok(paths)
}

/// One byte more than allowed is enough to see that a file is too large.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::of_file(path, format!("cannot be read: {error}"))
}
