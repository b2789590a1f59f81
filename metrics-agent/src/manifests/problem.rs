//! What is wrong with manifests, and where.

use core::fmt;
use core::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use deserr::{DeserializeError, ErrorKind, IntoValue, MergeWithError, Value, ValueKind, ValuePointerRef};
use serde_json::Value as Json;

/// Most problems that are told; the rest are counted.
const MOST_TOLD: usize = 50;

/// Longer values are cut in messages.
const MOST_OF_A_VALUE: usize = 120;

/// Where a document stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) file: Arc<Path>,
    /// Counted from 1; empty documents do not count.
    pub(super) document: usize,
    /// Its place in the document's list, counted from 1; `None`: the document is no list.
    pub(super) item: Option<usize>,
}

impl Origin {
    /// For messages about other documents.
    pub(super) fn place(&self) -> String {
        let item = self.item.map(|item| format!("item {item} of ")).unwrap_or_default();
        format!("{item}document {} of {}", self.document, self.file.display())
    }

    pub(super) fn problem(&self, fault: Fault) -> Problem {
        let (file, document) = (Arc::clone(&self.file), Some(self.document));
        Problem { file, document, item: self.item, at: fault.at, text: fault.text }
    }
}

/// One thing that is wrong, or that deserves a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was found.
    pub file: Arc<Path>,
    /// The document in it, counted from 1.
    pub document: Option<usize>,
    /// The item in it, counted from 1, if the document is a list.
    pub item: Option<usize>,
    /// The path of the value, such as `spec.rules[0].targets[1].weight`; empty for the document itself.
    pub at: String,
    /// The value, and what is allowed.
    pub text: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn of_file(file: &Path, text: impl Into<String>) -> Self {
        Self { file: file.into(), document: None, item: None, at: String::new(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(document) = self.document {
            write!(f, "document {document}: ")?;
        }
        if let Some(item) = self.item {
            write!(f, "item {item}: ")?;
        }
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.text)
    }
}

/// All that is wrong with a set of manifests, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(MOST_TOLD).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.0.len().saturating_sub(MOST_TOLD) {
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

/// A problem within one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: String,
    pub(super) text: String,
}

impl Fault {
    pub(super) fn new(at: impl Into<String>, text: impl Into<String>) -> Self {
        Self { at: at.into(), text: text.into() }
    }
}

/// All problems of one document; what deserr gathers.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    pub(super) fn push(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.0.push(Fault::new(at, text));
    }

    pub(super) fn wrong_kind<V: IntoValue>(
        value: Value<V>,
        accepted: &[ValueKind],
        at: ValuePointerRef<'_>,
    ) -> Self {
        let text = format!("{}; allowed is {}", described(value), kinds(accepted));
        Self(vec![Fault::new(path(at), text)])
    }
}

impl MergeWithError<Self> for Faults {
    fn merge(known: Option<Self>, other: Self, _: ValuePointerRef<'_>) -> ControlFlow<Self, Self> {
        let mut all = known.unwrap_or_default();
        all.0.extend(other.0);
        ControlFlow::Continue(all)
    }
}

/// What a conversion of a value has to say; it names the value and what is allowed.
impl MergeWithError<String> for Faults {
    fn merge(known: Option<Self>, text: String, at: ValuePointerRef<'_>) -> ControlFlow<Self, Self> {
        let mut all = known.unwrap_or_default();
        all.push(path(at), text);
        ControlFlow::Continue(all)
    }
}

impl DeserializeError for Faults {
    fn error<V: IntoValue>(
        known: Option<Self>,
        error: ErrorKind<'_, V>,
        at: ValuePointerRef<'_>,
    ) -> ControlFlow<Self, Self> {
        let mut all = known.unwrap_or_default();
        match error {
            ErrorKind::IncorrectValueKind { actual, accepted } => {
                all.0.extend(Self::wrong_kind(actual, accepted, at).0);
            }
            ErrorKind::MissingField { field } => {
                all.push(path(at.push_key(field)), "is missing; it is required");
            }
            ErrorKind::UnknownKey { key, accepted } => {
                let text = format!("is no known field; allowed: {}", accepted.join(", "));
                all.push(path(at.push_key(&cut(key))), text);
            }
            ErrorKind::UnknownValue { value, accepted } => {
                let text = format!("{}; allowed: {}", quoted(value), accepted.join(", "));
                all.push(path(at), text);
            }
            ErrorKind::BadSequenceLen { expected, .. } => {
                all.push(path(at), format!("has another length than the allowed {expected}"));
            }
            ErrorKind::Unexpected { msg } => all.push(path(at), msg),
        }
        ControlFlow::Continue(all)
    }
}

/// A text from a document, as messages show it.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_OF_A_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// `spec.rules[0].targets[1].weight`
fn path(at: ValuePointerRef<'_>) -> String {
    match at {
        ValuePointerRef::Origin => String::new(),
        ValuePointerRef::Key { key, prev } => match path(*prev) {
            parent if parent.is_empty() => key.to_owned(),
            parent => format!("{parent}.{key}"),
        },
        ValuePointerRef::Index { index, prev } => format!("{}[{index}]", path(*prev)),
    }
}

fn described<V: IntoValue>(value: Value<V>) -> String {
    match Json::from(value) {
        Json::Null => "nothing".to_owned(),
        Json::String(text) => format!("{} is a text", quoted(&text)),
        Json::Array(_) => "is a list".to_owned(),
        Json::Object(_) => "is an object".to_owned(),
        plain => plain.to_string(),
    }
}

fn kinds(accepted: &[ValueKind]) -> &'static str {
    match accepted.iter().find(|kind| **kind == ValueKind::Float).or(accepted.last()) {
        Some(ValueKind::Boolean) => "true or false",
        Some(ValueKind::Integer | ValueKind::NegativeInteger) => "a whole number",
        Some(ValueKind::Float) => "a number",
        Some(ValueKind::String) => "a text",
        Some(ValueKind::Sequence) => "a list",
        Some(ValueKind::Map) => "an object",
        Some(ValueKind::Null) | None => "nothing",
    }
}
