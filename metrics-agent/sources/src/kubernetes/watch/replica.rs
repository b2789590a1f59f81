//! The objects of one watch, from lists and events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kubernetes::client::{ApiError, StatusBody};

/// Reads the objects of one kind.
pub(crate) trait Decode: Send + 'static {
    /// An object.
    type Value: PartialEq + Send + Sync + 'static;

    /// Reads an object's JSON. `None`: it is left out, such as a pod that is not ready. The error is the
    /// reason for ignoring it.
    fn decode(&self, json: &str) -> Result<Option<Self::Value>, String>;
}

/// Reads only the namespace and name of an object.
pub(crate) struct DecodeName;

impl Decode for DecodeName {
    type Value = Key;

    fn decode(&self, json: &str) -> Result<Option<Key>, String> {
        let WatchedObject { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        Ok(Some((metadata.namespace, metadata.name)))
    }
}

/// The objects of one watch. A list replaces them when it is complete, and events change them one by one.
pub(super) struct WatchReplica<D: Decode> {
    decode: D,
    max_objects: usize,
    objects: Objects<D::Value>,
    /// Objects of the list that were read so far.
    listed: Objects<D::Value>,
}

struct Objects<V> {
    by_key: BTreeMap<Key, Arc<V>>,
    /// Objects that cannot be used.
    ignored: BTreeSet<Key>,
}

impl<V> Default for Objects<V> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), ignored: BTreeSet::new() }
    }
}

/// Namespace and name.
type Key = (String, String);

/// Next step after a page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextPage {
    /// The page after this token.
    After(String),
    /// None: the list is complete, and changes since this version can be watched.
    Complete(String),
}

/// An event that was applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Applied {
    /// The version to watch from after a break.
    pub(super) version: String,
    /// Whether an object joined, changed or left.
    pub(super) has_changed: bool,
}

#[derive(Deserialize)]
struct WatchedList<'a> {
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    #[serde(rename = "type")]
    kind: WatchEventKind,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum WatchEventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct WatchedObject {
    metadata: WatchedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchedMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    resource_version: String,
}

impl<D: Decode> WatchReplica<D> {
    /// No objects yet. Objects beyond `max_objects` are ignored.
    pub(super) fn new(decode: D, max_objects: usize) -> Self {
        Self { decode, max_objects, objects: Objects::default(), listed: Objects::default() }
    }

    /// All objects, ordered by namespace and name.
    pub(super) fn objects(&self) -> Vec<Arc<D::Value>> {
        self.objects.by_key.values().cloned().collect()
    }

    /// Number of objects that cannot be used.
    pub(super) fn ignored(&self) -> usize {
        self.objects.ignored.len()
    }

    /// Drops all objects.
    pub(super) fn clear(&mut self) {
        self.objects = Objects::default();
    }

    /// Begins a list; the objects stay until it is complete.
    pub(super) fn begin_list(&mut self) {
        self.listed = Objects::default();
    }

    /// Reads one page of the list; the last one replaces the objects.
    pub(super) fn read_page(&mut self, page: &[u8]) -> Result<NextPage, ApiError> {
        let WatchedList { metadata, items } = parse(page)?;
        for item in items.unwrap_or_default() {
            let WatchedObject { metadata } = parse(item.get().as_bytes())?;
            let key = (metadata.namespace, metadata.name);
            let before = self.objects.by_key.get(&key);
            let is_ignored = self.objects.ignored.contains(&key);
            let value = read(&self.decode, self.max_objects, &self.listed, &key, item, is_ignored);
            match value {
                Ok(Some(value)) => {
                    let unchanged = before.filter(|before| ***before == value).cloned();
                    self.listed.by_key.insert(key, unchanged.unwrap_or_else(|| Arc::new(value)));
                }
                Ok(None) => {}
                Err(Ignored) => self.listed.ignore(key, self.max_objects),
            }
        }
        if let Some(token) = metadata.next.filter(|token| !token.is_empty()) {
            return Ok(NextPage::After(token));
        }
        match metadata.resource_version.filter(|version| !version.is_empty()) {
            Some(version) => {
                self.objects = core::mem::take(&mut self.listed);
                Ok(NextPage::Complete(version))
            }
            None => Err(ApiError::Malformed("the list has no resourceVersion".to_owned())),
        }
    }

    /// Applies an event of the watch.
    pub(super) fn apply(&mut self, event: &[u8]) -> Result<Applied, ApiError> {
        let WatchEvent { kind, object } = parse(event)?;
        let text = object.get().as_bytes();
        if matches!(kind, WatchEventKind::Error) {
            return Err(parse::<StatusBody>(text)?.error());
        }
        let WatchedObject { metadata } = parse(text)?;
        let (key, version) = ((metadata.namespace, metadata.name), metadata.resource_version);
        let has_changed = match kind {
            WatchEventKind::Added | WatchEventKind::Modified => self.set(key, object),
            WatchEventKind::Deleted => self.objects.remove(&key),
            WatchEventKind::Bookmark | WatchEventKind::Error => false,
        };
        Ok(Applied { version, has_changed })
    }

    fn set(&mut self, key: Key, object: &RawValue) -> bool {
        let is_ignored = self.objects.ignored.contains(&key);
        match read(&self.decode, self.max_objects, &self.objects, &key, object, is_ignored) {
            Ok(Some(value)) => {
                let is_same = self.objects.by_key.get(&key).is_some_and(|before| **before == value);
                self.objects.ignored.remove(&key);
                if !is_same {
                    self.objects.by_key.insert(key, Arc::new(value));
                }
                !is_same
            }
            Ok(None) => self.objects.remove(&key),
            Err(Ignored) => {
                let was_used = self.objects.remove(&key);
                self.objects.ignore(key, self.max_objects);
                was_used
            }
        }
    }
}

impl<V> Objects<V> {
    fn remove(&mut self, key: &Key) -> bool {
        self.ignored.remove(key);
        self.by_key.remove(key).is_some()
    }

    fn ignore(&mut self, key: Key, max: usize) {
        if self.ignored.len() < max {
            self.ignored.insert(key);
        }
    }
}

/// The object cannot be used, and the reason is logged.
struct Ignored;

/// Reads an object that is to be among `others`. The reason is logged once, not for each change of an object
/// that stays unusable.
fn read<D: Decode>(
    decode: &D,
    max: usize,
    others: &Objects<D::Value>,
    key: &Key,
    object: &RawValue,
    was_ignored: bool,
) -> Result<Option<D::Value>, Ignored> {
    let read = match decode.decode(object.get()) {
        Ok(Some(_)) if others.by_key.len() >= max && !others.by_key.contains_key(key) => {
            Err(format!("exceeds the limit of {max} objects"))
        }
        read => read,
    };
    read.map_err(|reason| {
        if !was_ignored {
            let (namespace, name) = key;
            tracing::warn!(namespace, name, reason, "an object of the API server is ignored");
        }
        Ignored
    })
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(text).map_err(|error| ApiError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests;
