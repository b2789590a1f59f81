//! Problems within one document.

use core::ops::ControlFlow;

use deserr::{DeserializeError, ErrorKind, IntoValue, MergeWithError, Value, ValueKind, ValuePointerRef};
use metrics_agent_sources::manifests::{Origin, Problem};
use metrics_agent_support::suggestion::with_allowed;
use serde_json::Value as Json;

/// Maximum length of a value in a message, in characters; longer values are cut.
const MAX_VALUE_CHARS: usize = 120;

/// A problem within one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: String,
    pub text: String,
    /// The JSON pointer of an unknown field.
    unknown_field: Option<String>,
}

impl Fault {
    pub(crate) fn new(at: impl Into<String>, text: impl Into<String>) -> Self {
        Self { at: at.into(), text: text.into(), unknown_field: None }
    }

    /// Removes the unknown field from its document. False: the fault is another one.
    pub(crate) fn remove_unknown_field(&self, document: &mut Json) -> bool {
        let Some((parent, key)) = self.unknown_field.as_ref().and_then(|field| field.rsplit_once('/')) else {
            return false;
        };
        let fields = document.pointer_mut(parent).and_then(Json::as_object_mut);
        fields.is_some_and(|fields| fields.remove(&key.replace("~1", "/").replace("~0", "~")).is_some())
    }
}

/// All problems of one document, collected by deserr.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub Vec<Fault>);

impl Faults {
    pub(crate) fn push(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.0.push(Fault::new(at, text));
    }

    /// The problems of the document at this position.
    pub(crate) fn at(self, origin: &Origin) -> impl Iterator<Item = Problem> {
        self.0.into_iter().map(|fault| origin.problem(fault.at, fault.text))
    }

    pub(crate) fn wrong_kind<V: IntoValue>(
        value: Value<V>,
        accepted: &[ValueKind],
        at: ValuePointerRef<'_>,
    ) -> Self {
        let text = format!("{}; allowed is {}", described(value), kinds(accepted));
        Self(vec![Fault::new(path(at), text)])
    }
}

impl MergeWithError<Self> for Faults {
    fn merge(earlier: Option<Self>, other: Self, _: ValuePointerRef<'_>) -> ControlFlow<Self, Self> {
        let mut all = earlier.unwrap_or_default();
        all.0.extend(other.0);
        ControlFlow::Continue(all)
    }
}

/// Errors of a value's conversion, which name the value and what is allowed.
impl MergeWithError<String> for Faults {
    fn merge(earlier: Option<Self>, text: String, at: ValuePointerRef<'_>) -> ControlFlow<Self, Self> {
        let mut all = earlier.unwrap_or_default();
        all.push(path(at), text);
        ControlFlow::Continue(all)
    }
}

impl DeserializeError for Faults {
    fn error<V: IntoValue>(
        earlier: Option<Self>,
        error: ErrorKind<'_, V>,
        at: ValuePointerRef<'_>,
    ) -> ControlFlow<Self, Self> {
        let mut all = earlier.unwrap_or_default();
        match error {
            ErrorKind::IncorrectValueKind { actual, accepted } => {
                all.0.extend(Self::wrong_kind(actual, accepted, at).0);
            }
            ErrorKind::MissingField { field } => {
                all.push(path(at.push_key(field)), "is missing; it is required");
            }
            ErrorKind::UnknownKey { key, accepted } => {
                let text = format!("unknown field{}", with_allowed(key, accepted));
                let unknown_field = Some(pointer(at.push_key(key)));
                all.0.push(Fault { at: path(at.push_key(&cut(key))), text, unknown_field });
            }
            ErrorKind::UnknownValue { value, accepted } => {
                all.push(path(at), format!("{}{}", quoted(value), with_allowed(value, accepted)));
            }
            ErrorKind::BadSequenceLen { expected, .. } => {
                all.push(path(at), format!("has the wrong length; allowed is {expected}"));
            }
            ErrorKind::Unexpected { msg } => all.push(path(at), msg),
        }
        ControlFlow::Continue(all)
    }
}

/// A string from a document, as messages show it.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The path of a value, such as `spec.rules[0].targets[1].weight`.
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

/// The JSON pointer of a value (RFC 6901), such as `/spec/rules/0/targets/1/weight`.
fn pointer(at: ValuePointerRef<'_>) -> String {
    match at {
        ValuePointerRef::Origin => String::new(),
        ValuePointerRef::Key { key, prev } => {
            format!("{}/{}", pointer(*prev), key.replace('~', "~0").replace('/', "~1"))
        }
        ValuePointerRef::Index { index, prev } => format!("{}/{index}", pointer(*prev)),
    }
}

fn described<V: IntoValue>(value: Value<V>) -> String {
    match Json::from(value) {
        Json::Null => "nothing".to_owned(),
        Json::String(text) => format!("{} is a string", quoted(&text)),
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
        Some(ValueKind::String) => "a string",
        Some(ValueKind::Sequence) => "a list",
        Some(ValueKind::Map) => "an object",
        Some(ValueKind::Null) | None => "nothing",
    }
}
