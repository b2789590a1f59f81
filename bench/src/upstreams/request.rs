//! The requests that an upstream gets.

use anyhow::{Context, Result};

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Metrics,
    Whole,
    Streamed,
    Paced,
    PacedShort,
}

/// In a body: the response is to be streamed.
const STREAM: &[u8] = br#""stream":true"#;
/// In a body besides: its chunks come one at a time, as from a model that takes time for each.
pub const PACED: &str = "one at a time";
/// The same, of a response with a tenth of the chunks.
pub const PACED_SHORT: &str = "a tenth, one at a time";
/// All are among the last bytes of a body; the others are not searched.
const TAIL: usize = 64;
/// Whether a body's end contains this.
fn ends_with_part(body: &[u8], what: &[u8]) -> bool {
    body[body.len().saturating_sub(TAIL)..].windows(what.len()).any(|part| part == what)
}

/// The kind of the first request in `bytes`, and its length with its body; `None` until it is complete.
pub(super) fn request(bytes: &[u8]) -> Result<Option<(RequestKind, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes)? else { return Ok(None) };
    let field = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| str::from_utf8(header.value)).transpose()
    };
    let body = if field("transfer-encoding")? == Some("chunked") {
        // A body that an external processor may change has no content-length.
        chunked_length(&bytes[head..])?
    } else {
        Some(field("content-length")?.unwrap_or("0").parse().context("content-length")?)
    };
    let is_get = request.method == Some("GET");
    let Some(body) = body.and_then(|length| bytes.get(head..head + length)) else { return Ok(None) };
    let kind = if is_get {
        RequestKind::Metrics
    } else if ends_with_part(body, PACED_SHORT.as_bytes()) {
        RequestKind::PacedShort
    } else if ends_with_part(body, PACED.as_bytes()) {
        RequestKind::Paced
    } else if ends_with_part(body, STREAM) {
        RequestKind::Streamed
    } else {
        RequestKind::Whole
    };
    Ok(Some((kind, head + body.len())))
}

/// Length of a body in chunks, with the last one; `None` until that has come.
fn chunked_length(bytes: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let parsed = httparse::parse_chunk_size(rest).ok().context("the size of a chunk")?;
        let httparse::Status::Complete((line, size)) = parsed else { return Ok(None) };
        at += line + usize::try_from(size)? + 2;
        if size == 0 {
            return Ok((at <= bytes.len()).then_some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_complete_with_its_length_or_its_last_chunk() {
        let length = |text: &str| request(text.as_bytes()).unwrap().map(|(_, length)| length);
        let whole = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(length(whole), Some(whole.len()));
        assert_eq!(length(&whole[..whole.len() - 1]), None);
        let chunked =
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(length(chunked), Some(chunked.len()));
        for end in chunked.len() - 25..chunked.len() {
            assert_eq!(length(&chunked[..end]), None, "{end}");
        }
        assert_eq!(length(&format!("{chunked}GET")), Some(chunked.len()));
    }

    #[test]
    fn the_kind_is_read_from_the_end_of_the_body() {
        let kind = |body: &str| {
            let request = request(
                format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
            );
            request.unwrap().unwrap().0
        };
        assert_eq!(kind(r#"{"stream":false}"#), RequestKind::Whole);
        assert_eq!(kind(r#"{"stream":true}"#), RequestKind::Streamed);
        assert_eq!(kind(r#"{"stream":true,"user":"one at a time"}"#), RequestKind::Paced);
        assert_eq!(kind(r#"{"stream":true,"user":"a tenth, one at a time"}"#), RequestKind::PacedShort);
    }
}
