//! Fields of several kinds of manifests.

use core::cmp::Ordering;
use std::collections::BTreeMap;
use std::num::NonZeroU16;

use deserr::{Deserr, IntoValue, Map, Value, ValueKind, ValuePointerRef};
use jiff::Timestamp;
use serde_json::Value as Json;

use super::Scope;
use super::fault::{Faults, quoted};

/// The name of an object or a namespace: a DNS name in lower case, as Kubernetes requires.
#[derive(Clone, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults, try_from(String) = Self::new -> String)]
pub(crate) struct Name(pub String);

impl Name {
    fn new(name: String) -> Result<Self, String> {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
        let outer = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let bytes = name.as_bytes();
        let is_valid = name.len() <= 253
            && outer(bytes.first())
            && outer(bytes.last())
            && bytes.iter().all(|&c| inner(c));
        if is_valid {
            return Ok(Self(name));
        }
        let allowed =
            "1 to 253 lower-case letters, digits, - and ., the first and the last a letter or digit";
        Err(format!("{} is not a valid name; allowed are {allowed}", quoted(&name)))
    }
}

/// The metadata of an object.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub name: String,
    pub namespace: String,
    pub(crate) annotations: Texts,
    created: Option<Timestamp>,
}

impl Metadata {
    pub(super) fn new(fields: MetadataFields, scope: &Scope) -> Self {
        let MetadataFields { name, namespace, creation_timestamp, annotations, .. } = fields;
        Self {
            name: name.0,
            namespace: scope.namespace_or_default(namespace.map(|name| name.0)),
            annotations,
            created: creation_timestamp.map(|time| time.0),
        }
    }

    /// Oldest first, then by namespace and name. An object without a creation time comes first, as in the
    /// EPP, where it has the zero time.
    pub(crate) fn by_age(&self, other: &Self) -> Ordering {
        let key = |it: &Self| (it.created, it.namespace.clone(), it.name.clone());
        key(self).cmp(&key(other))
    }
}

/// The fields of an object's metadata. Other fields are written by Kubernetes and not used.
#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase)]
pub(super) struct MetadataFields {
    name: Name,
    #[deserr(default)]
    namespace: Option<Name>,
    #[deserr(default)]
    creation_timestamp: Option<CreationTime>,
    #[deserr(default, rename = "labels")]
    _labels: Texts,
    #[deserr(default)]
    annotations: Texts,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
struct CreationTime(Timestamp);

impl CreationTime {
    fn new(text: &str) -> Result<Self, String> {
        let parsed = text.parse().map(Self);
        parsed.map_err(|_| {
            format!("{} is not a time; allowed is RFC 3339, such as 2026-01-31T12:00:00Z", quoted(text))
        })
    }
}

/// Strings by name, such as labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(pub BTreeMap<String, String>);

/// Implemented by hand, because deserr's implementation for maps loses the problems of values.
impl Deserr<Faults> for Texts {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        at: ValuePointerRef<'_>,
    ) -> Result<Self, Faults> {
        let Value::Map(map) = value else {
            return Err(Faults::wrong_kind(value, &[ValueKind::Map], at));
        };
        let (mut texts, mut faults) = (BTreeMap::new(), Faults::default());
        for (name, value) in map.into_iter() {
            match String::deserialize_from_value(value.into_value(), at.push_key(&name)) {
                Ok(text) => drop(texts.insert(name, text)),
                Err(Faults(more)) => faults.0.extend(more),
            }
        }
        if faults.0.is_empty() { Ok(Self(texts)) } else { Err(faults) }
    }
}

/// 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults, try_from(i64) = Self::new -> String)]
pub(crate) struct Port(pub NonZeroU16);

impl Port {
    fn new(port: i64) -> Result<Self, String> {
        let number = u16::try_from(port).ok().and_then(NonZeroU16::new);
        number.map(Self).ok_or_else(|| format!("{port} is not a port; allowed is 1 to 65535"))
    }
}

/// The share of a target in the traffic, relative to the other targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults, try_from(i64) = Self::new -> String)]
pub(crate) struct Weight(pub u32);

impl Weight {
    fn new(weight: i64) -> Result<Self, String> {
        let number = u32::try_from(weight).ok().filter(|weight| (1..=1_000_000).contains(weight));
        number.map(Self).ok_or_else(|| format!("{weight} is not a weight; allowed is 1 to 1000000"))
    }
}

/// A model's name.
#[derive(Clone, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults, try_from(String) = Self::new -> String)]
pub(crate) struct Model(pub String);

impl Model {
    pub(super) fn new(model: String) -> Result<Self, String> {
        if (1..=256).contains(&model.len()) {
            Ok(Self(model))
        } else {
            Err(format!("{} has {} bytes; allowed are 1 to 256", quoted(&model), model.len()))
        }
    }
}

/// A reference to a pool in the object's namespace.
#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
pub(crate) struct PoolRef {
    #[deserr(default)]
    pub group: Option<PoolGroup>,
    #[deserr(default, rename = "kind")]
    _kind: Option<PoolKind>,
    pub name: Name,
}

#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults)]
enum PoolKind {
    InferencePool,
}

/// The API group of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults)]
pub(crate) enum PoolGroup {
    #[deserr(rename = "inference.networking.k8s.io")]
    Stable,
    #[deserr(rename = "inference.networking.x-k8s.io")]
    Experimental,
}

/// Removes fields that are null: as in Kubernetes, null means absent.
pub(super) fn without_nulls(value: Json) -> Json {
    without_nulls_outside("", value)
}

/// Removes fields that are null, except within fields named `skipped`.
pub(crate) fn without_nulls_outside(skipped: &str, value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let given = IntoIterator::into_iter(fields).filter(|(_, value)| !value.is_null());
            let each = |(key, value): (String, Json)| {
                let value = if key == skipped { value } else { without_nulls_outside(skipped, value) };
                (key, value)
            };
            Json::Object(given.map(each).collect())
        }
        Json::Array(items) => {
            Json::Array(items.into_iter().map(|item| without_nulls_outside(skipped, item)).collect())
        }
        plain => plain,
    }
}
