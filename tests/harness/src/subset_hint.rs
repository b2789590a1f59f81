//! A filter before the picker that sets the subset hint, per request.
//!
//! A test sends the hint in a header; Envoy's own `header_to_metadata` filter turns it into the metadata a
//! gateway would set, with its exact type, and takes the header away.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

/// The header a test sends the hint in.
pub const HEADER: &str = "x-test-subset-hint";

/// The filter, for [`crate::stack::Builder::filter_before_picker`].
pub fn filter() -> serde_json::Value {
    serde_json::json!({
        "name": "subset-hint",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{
                "header": HEADER,
                "remove": true,
                "on_header_present": {
                    "metadata_namespace": "envoy.lb.subset_hint",
                    "key": "x-gateway-destination-endpoint-subset",
                    "type": "PROTOBUF_VALUE",
                    "encode": "BASE64",
                },
            }],
        },
    })
}

/// The header's value for a list of endpoints.
pub fn list<T: ToString>(endpoints: &[T]) -> String {
    let values = endpoints.iter().map(|endpoint| string_value(endpoint.to_string())).collect();
    encode(&Value { kind: Some(Kind::ListValue(ListValue { values })) })
}

/// The header's value for one string, such as `ip:port,ip:port`.
pub fn string(hint: &str) -> String {
    encode(&string_value(hint.to_owned()))
}

/// The header's value for any JSON value.
pub fn json(hint: &serde_json::Value) -> String {
    encode(&value(hint))
}

fn value(json: &serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        serde_json::Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(value).collect() })
        }
        serde_json::Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.clone(), value(field)));
            Kind::StructValue(Struct { fields: fields.collect() })
        }
    };
    Value { kind: Some(kind) }
}

fn string_value(text: String) -> Value {
    Value { kind: Some(Kind::StringValue(text)) }
}

fn encode(value: &Value) -> String {
    BASE64_STANDARD.encode(value.encode_to_vec())
}
