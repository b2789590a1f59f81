//! Request bodies, through `serde_json`.

use endpoint_picker::body::{Api, Body, BodyError, Json, Options, utf8};
use endpoint_picker::rejection::Rejection;
use serde::de::DeserializeSeed;

/// `serde_json`, which refuses nesting deeper than 128.
struct SerdeJson;

impl Json for SerdeJson {
    type Error = serde_json::Error;

    fn read<'a, S: DeserializeSeed<'a>>(text: &'a str, seed: S) -> Result<S::Value, Self::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = seed.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
}

/// Reads the body of a request to `api`; the rejection is what the client is told.
pub(crate) fn read<'a>(api: Api, bytes: &'a [u8], options: &Options) -> Result<Body<'a>, Rejection> {
    if !api.is_read() {
        return Ok(Body::default());
    }
    utf8(bytes).and_then(|text| Body::read::<SerdeJson>(text, api, options)).map_err(refusal)
}

/// A body that is refused, as the client is told.
#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
pub(crate) fn refusal(error: BodyError) -> Rejection {
    Rejection::bad_request(error.to_string())
}
