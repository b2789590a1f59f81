//! Replaces the model in a request body and leaves every other byte as it is.

use core::ops::Range;

use crate::json::quoted;

/// The form with `model` as the value of its field, which is at `span`. Without a span the form has no such field, and stays as it is.
pub fn name_model_in_form(form: &[u8], span: Option<Range<usize>>, model: &str) -> Vec<u8> {
    let replace =
        |Range { start, end }| Some([form.get(..start)?, model.as_bytes(), form.get(end..)?].concat());
    span.and_then(replace).unwrap_or_else(|| form.to_vec())
}

/// The JSON body with `model` as its top-level model.
///
/// `body` is the text that [`Body`](crate::request::body::Body) was read from, and `span` its
/// [`model_span`](crate::request::body::Body::model_span). Without a span, a member is added at the end: of several with one name the last
/// counts. The EPP encodes the whole body again instead, with sorted members and rounded numbers.
pub fn name_model(body: &[u8], span: Option<Range<usize>>, model: &str) -> Vec<u8> {
    let value = quoted(model);
    let replace = |Range { start, end }| Some([body.get(..start)?, &value, body.get(end..)?].concat());
    if let Some(replaced) = span.and_then(replace) {
        return replaced;
    }
    let end = body.iter().rposition(|&byte| byte == b'}');
    let Some((before, after)) = end.and_then(|end| body.split_at_checked(end)) else {
        // The body is null, which the EPP reads like an object.
        return [b"{\"model\":", &*value, b"}"].concat();
    };
    let last = before.iter().rfind(|byte| !byte.is_ascii_whitespace());
    let comma: &[u8] = if last == Some(&b'{') { b"" } else { b"," };
    [before, comma, b"\"model\":", &value, after].concat()
}
