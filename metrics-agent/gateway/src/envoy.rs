//! Parts of Envoy's messages that several of them have. Numbers of fields are those of Envoy's API v3.

use super::settings::Module;
use super::wire::Builder;

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

/// `DynamicModuleConfig`: name = 1, `do_not_close` = 3, module = 6. All configurations share the module's
/// state, so it stays loaded.
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
