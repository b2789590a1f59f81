//! Request bodies.

use endpoint_picker::body::{Api, Body, BodyError, Options, utf8};
use endpoint_picker::rejection::Rejection;
use endpoint_picker_json::SerdeJson;

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
