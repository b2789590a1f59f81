//! Another model in a request body, and every other byte as it was.

use core::ops::Range;

use crate::json::quoted;

/// The body with `model` as its top-level model.
///
/// `body` is the text of a JSON object and `span` the place of its model's value, both as
/// [`Body`](crate::body::Body) was read from it. Where there is no span, a member is added at the end: of several with
/// one name the last counts. The EPP writes the whole body anew instead, with its members sorted and its numbers
/// rounded.
pub fn name_model(body: &[u8], span: Option<Range<usize>>, model: &str) -> Vec<u8> {
    let value = quoted(model);
    if let Some(span) = span {
        return [&body[..span.start], &value, &body[span.end..]].concat();
    }
    let Some(end) = body.iter().rposition(|&byte| byte == b'}') else {
        // Only null reads like an object and has no end.
        return [b"{\"model\":", &*value, b"}"].concat();
    };
    let last = body[..end].iter().rfind(|byte| !byte.is_ascii_whitespace());
    let comma: &[u8] = if last == Some(&b'{') { b"" } else { b"," };
    [&body[..end], comma, b"\"model\":", &value, &body[end..]].concat()
}
