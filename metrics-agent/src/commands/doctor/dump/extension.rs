//! Extensions with their typed configurations.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A named extension.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) typed_config: Value,
    /// An HTTP filter that Envoy gets by itself (ECDS) is without a configuration here.
    pub(crate) config_discovery: Option<Value>,
    /// An HTTP filter that runs only on routes that enable it.
    pub(crate) disabled: bool,
}

/// A typed configuration (`google.protobuf.Any`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// The full name of the message.
    pub(crate) kind: &'a str,
    /// Its fields.
    pub(crate) fields: &'a Value,
}

impl<'a> Message<'a> {
    /// The message in an `Any`. A `TypedStruct`, in which control planes pass messages that they do not know, is unpacked.
    pub(crate) fn of(any: &'a Value) -> Option<Self> {
        let url = any.get("@type")?.as_str()?;
        let name = url.rsplit('/').next()?;
        if name.ends_with(".TypedStruct") {
            let name = any.get("type_url")?.as_str()?.rsplit('/').next()?;
            return Some(Self { kind: name, fields: any.get("value")? });
        }
        Some(Self { kind: name, fields: any })
    }

    /// The message as this type, if it has this full name.
    pub(crate) fn read<T: DeserializeOwned>(self, name: &str) -> Option<Result<T, serde_json::Error>> {
        (self.kind == name).then(|| T::deserialize(self.fields))
    }

    /// The JSON text in a `StringValue` or a `Struct`, as Envoy passes it to a wasm filter or a module.
    pub(crate) fn text(self) -> Option<String> {
        let value = self.fields.get("value")?;
        match self.kind {
            "google.protobuf.StringValue" => value.as_str().map(str::to_owned),
            "google.protobuf.Struct" => Some(value.to_string()),
            _ => None,
        }
    }
}
