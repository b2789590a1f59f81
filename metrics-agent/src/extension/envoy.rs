//! Parts of Envoy's messages that several of them have. Numbers of fields are those of Envoy's API v3.

use super::settings::Module;
use super::wire::{Builder, Malformed, Message};

/// The name of the filter, of its cluster and of their settings.
pub(crate) const NAME: &str = "endpoint-picker";

/// `Route.metadata`.
const ROUTE_METADATA: u32 = 4;
/// `Metadata.filter_metadata`, whose entries have a key and a value.
const FILTER_METADATA: u32 = 1;
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// The `google.protobuf.Struct` under this key in a route's metadata.
pub(super) fn route_metadata(route: &Message<'_>, key: &str) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(metadata) = route.message(ROUTE_METADATA) else { return Ok(None) };
    let mut found = None;
    for entry in Message::read(&metadata)?.all(FILTER_METADATA) {
        let entry = Message::read(entry)?;
        if entry.text(KEY) == Some(key) {
            found = Some(entry.message(VALUE).unwrap_or_default().into_owned());
        }
    }
    Ok(found)
}

/// The route with this in its metadata. Occurrences of a message are merged.
pub(super) fn add_route_metadata(route: Builder, key: &str, value: &[u8]) -> Builder {
    let entry = Builder::default().bytes(KEY, key).bytes(VALUE, value);
    route.bytes(ROUTE_METADATA, Builder::default().bytes(FILTER_METADATA, entry))
}

/// The route without these fields, and without what its metadata has under this key.
pub(super) fn without_route_metadata(
    route: &Message<'_>,
    fields: &[u32],
    key: &str,
) -> Result<Builder, Malformed> {
    let metadata = route.message(ROUTE_METADATA).unwrap_or_default();
    let mut rest = Builder::default();
    for field in Message::read(&metadata)?.fields() {
        let is_entry = field.number == FILTER_METADATA;
        if !is_entry || Message::read(field.value.bytes())?.text(KEY) != Some(key) {
            rest.copy(field);
        }
    }
    Ok(route.without(&[fields, &[ROUTE_METADATA]].concat()).bytes(ROUTE_METADATA, rest))
}

/// `google.protobuf.Any`: a type and a message of it.
pub(super) fn any(type_name: &str, message: impl AsRef<[u8]>) -> Builder {
    Builder::default().bytes(1, format!("type.googleapis.com/{type_name}")).bytes(2, message)
}

/// `google.protobuf.Any` with a text.
pub(super) fn any_text(text: &str) -> Builder {
    any("google.protobuf.StringValue", Builder::default().bytes(1, text))
}

/// `TypedExtensionConfig`, and other messages of a name and the settings of an extension.
pub(super) fn extension(name: &str, settings_number: u32, settings: impl AsRef<[u8]>) -> Builder {
    Builder::default().bytes(1, name).bytes(settings_number, settings)
}

/// An entry of a map from names to messages.
pub(super) fn entry(name: &str, message: impl AsRef<[u8]>) -> Builder {
    Builder::default().bytes(1, name).bytes(2, message)
}

/// `google.protobuf.Duration`.
pub(super) fn duration(seconds: u64, nanos: u64) -> Builder {
    let duration = Builder::default().number(1, seconds);
    if nanos == 0 { duration } else { duration.number(2, nanos) }
}

/// `DynamicModuleConfig`: name = 1, `do_not_close` = 3, module = 6. All configurations share the module's state, so it stays loaded.
pub(super) fn module(module: &Module) -> Builder {
    let stays = |config: Builder| config.number(3, 1);
    match module {
        Module::Name(name) => stays(Builder::default().bytes(1, name)),
        // AsyncDataSource.local = 1, DataSource.filename = 1.
        Module::File(path) => {
            let source = Builder::default().bytes(1, Builder::default().bytes(1, path));
            stays(Builder::default()).bytes(6, source)
        }
    }
}
