//! The files of credentials.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::CredentialError;
use crate::files::FileLimits;

/// A file and its bytes.
pub(crate) type File = (PathBuf, Vec<u8>);

/// Reads all files.
pub(crate) async fn read(files: Arc<[PathBuf]>, limits: FileLimits) -> Result<Vec<File>, CredentialError> {
    let reading =
        tokio::task::spawn_blocking(move || files.iter().map(|file| read_one(file, limits)).collect());
    reading.await.unwrap_or_else(|error| Err(CredentialError::new(Path::new(""), error.to_string())))
}

fn read_one(path: &Path, limits: FileLimits) -> Result<File, CredentialError> {
    let read = limits.read(path).map_err(|error| CredentialError::new(path, error.to_string()));
    read.map(|bytes| (path.to_owned(), bytes))
}
