//! Reads manifest files.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metrics_agent_support::files::{self, MAX_BYTES};

use super::kubernetes::ObjectId;

/// Maximum number of manifest files in a directory.
const MAX_FILES: usize = 256;

/// Maximum number of manifests in all files together.
pub const MAX_MANIFESTS: usize = 4096;

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

/// Reads a file, or the `.yaml`, `.yml` and `.json` files of a directory in the order of their names. Hidden
/// files and subdirectories are skipped, so a mounted `ConfigMap` can be read as it is.
pub fn read(path: &Path) -> Result<Vec<File>, Problems> {
    let is_directory =
        std::fs::metadata(path).map_err(|error| Problems::from(unreadable(path, &error)))?.is_dir();
    let paths = if is_directory { files_of(path)? } else { vec![path.to_owned()] };
    let (mut read, mut problems, mut total) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        match files::read(&path) {
            Ok(bytes) => {
                total += bytes.len();
                read.push(File { path: path.into(), bytes });
            }
            Err(error) => problems.push(Problem::of_file(&path, error.to_string())),
        }
    }
    if total > MAX_BYTES {
        let text = format!("has {total} bytes; allowed are {MAX_BYTES}");
        problems.push(Problem::of_file(path, text));
    }
    if problems.is_empty() { Ok(read) } else { Err(Problems(problems)) }
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, Problems> {
    let fails = |error| Problems::from(unreadable(directory, &error));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fails)? {
        let path = entry.map_err(fails)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let named = path.extension().is_some_and(|end| EXTENSIONS.iter().any(|extension| end == *extension));
        if named && !hidden && !path.is_dir() {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            let text = format!("has more than the allowed {MAX_FILES} files");
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

/// Maximum number of problems that are printed; the rest are counted.
const MAX_PRINTED: usize = 50;

/// Place that a manifest is read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A file, or a directory of files.
    File(Arc<Path>),
    /// An object of the cluster.
    Object(Arc<ObjectId>),
    /// A key of a `ConfigMap`.
    ConfigMapKey(Arc<ObjectId>, Arc<str>),
}

/// The position of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Place that it is read from.
    pub source: Source,
    /// The document in a text from 1, without empty documents; `None`: the source as a whole.
    pub document: Option<usize>,
    /// The item in it from 1, if the document is a list.
    pub item: Option<usize>,
}

impl Source {
    /// The kinds of sources.
    pub const KINDS: [&str; 6] = [
        "ConfigMap",
        "File",
        "InferenceModel",
        "InferenceModelRewrite",
        "InferenceObjective",
        "InferencePool",
    ];

    /// One of [`Self::KINDS`] for everything that the agent reads.
    pub fn kind(&self) -> &str {
        match self {
            Self::File(_) => "File",
            Self::Object(id) | Self::ConfigMapKey(id, _) => &id.kind,
        }
    }
}

impl Origin {
    /// The position of a source as a whole.
    pub fn of(source: Source) -> Self {
        Self { source, document: None, item: None }
    }

    /// The position, for messages about other manifests.
    pub fn place(&self) -> String {
        let item = self.item.map(|item| format!("item {item} of ")).unwrap_or_default();
        let document = self.document.map(|document| format!("document {document} of ")).unwrap_or_default();
        format!("{item}{document}{}", self.source)
    }

    /// A problem of this manifest at the path `at`.
    pub fn problem(&self, at: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem { origin: self.clone(), at: at.into(), text: text.into() }
    }
}

/// One problem, or one warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The manifest.
    pub origin: Origin,
    /// The path of the value, such as `spec.rules[0].targets[1].weight`; empty for the manifest itself.
    pub at: String,
    /// The value, and what is allowed.
    pub text: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn of_file(file: &Path, text: impl Into<String>) -> Self {
        Origin::of(Source::File(file.into())).problem("", text)
    }

    /// The problem without its source.
    pub fn within_source(&self) -> WithinSource<'_> {
        WithinSource(self)
    }
}

/// A problem, shown without its source.
#[derive(Debug)]
pub struct WithinSource<'a>(&'a Problem);

impl fmt::Display for WithinSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { origin, at, text } = self.0;
        if let Some(document) = origin.document {
            write!(f, "document {document}: ")?;
        }
        if let Some(item) = origin.item {
            write!(f, "item {item}: ")?;
        }
        if !at.is_empty() {
            write!(f, "{at}: ")?;
        }
        f.write_str(text)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Object(id) => id.fmt(f),
            Self::ConfigMapKey(id, key) => write!(f, "key {key} of {id}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin.source, self.within_source())
    }
}

/// All problems of a set of manifests, printed one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(MAX_PRINTED).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.0.len().saturating_sub(MAX_PRINTED) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl core::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}
