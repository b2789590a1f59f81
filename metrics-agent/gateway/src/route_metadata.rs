//! The metadata of an Envoy route, by the field numbers of Envoy's API v3.

use super::wire::{Builder, Malformed, WireMessage};

/// `Route.metadata`.
const ROUTE_METADATA: u32 = 4;
/// `Metadata.filter_metadata`, whose entries have a key and a value.
const FILTER_METADATA: u32 = 1;
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// The `google.protobuf.Struct` under this key in a route's metadata.
pub(super) fn find(route: &WireMessage<'_>, key: &str) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(metadata) = route.message(ROUTE_METADATA) else { return Ok(None) };
    let mut found = None;
    for entry in WireMessage::read(&metadata)?.all(FILTER_METADATA) {
        let entry = WireMessage::read(entry)?;
        if entry.text(KEY) == Some(key) {
            found = Some(entry.message(VALUE).unwrap_or_default().into_owned());
        }
    }
    Ok(found)
}

/// The route with a `google.protobuf.Struct` under this key in its metadata. Occurrences of a message are
/// merged.
pub(super) fn add(route: Builder, key: &str, value: &[u8]) -> Builder {
    let entry = Builder::default().bytes(KEY, key).bytes(VALUE, value);
    route.bytes(ROUTE_METADATA, Builder::default().bytes(FILTER_METADATA, entry))
}

/// The route without these fields, and without the metadata under this key.
pub(super) fn without(route: &WireMessage<'_>, fields: &[u32], key: &str) -> Result<Builder, Malformed> {
    let metadata = route.message(ROUTE_METADATA).unwrap_or_default();
    let mut rest = Builder::default();
    for field in WireMessage::read(&metadata)?.fields() {
        let is_entry = field.number == FILTER_METADATA;
        if !is_entry || WireMessage::read(field.bytes())?.text(KEY) != Some(key) {
            rest.copy(&field);
        }
    }
    Ok(route.without(&[fields, &[ROUTE_METADATA]].concat()).bytes(ROUTE_METADATA, rest))
}
