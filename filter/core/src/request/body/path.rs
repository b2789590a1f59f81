//! The path of a request as the server behind the proxy reads it.
//!
//! Servers decode a path before they look up its route: `/v1/chat/completion%73` is served as `/v1/chat/completions`.
//! A rule that compared the raw text could be evaded by writing one letter differently.

use std::borrow::Cow;

use memchr::memchr2;
use percent_encoding::percent_decode_str;

use crate::headers::Headers;

/// The path that decides: the first of `path`, which is that of the request's head, and the headers `x-original-path` and
/// `x-forwarded-path` that is not empty, without its query; completions if there is none.
pub fn request_path<'h>(path: Option<&'h str>, headers: Headers<'h>) -> &'h str {
    let path = path.filter(|path| !path.is_empty());
    let given = path.or_else(|| headers.get_either(["x-original-path", "x-forwarded-path"]));
    given.map_or("/v1/completions", without_query)
}

/// Cuts a path before its query or fragment.
pub(super) fn without_query(path: &str) -> &str {
    memchr2(b'?', b'#', path.as_bytes()).map_or(path, |end| &path[..end])
}

/// Decodes `%xx` once, as servers do, then removes empty segments and resolves `.` and `..`. `path` has no query.
pub(super) fn as_served(path: &str) -> Cow<'_, str> {
    let is_plain = |pair: &[u8]| !matches!(pair, [b'/', b'/' | b'.'] | [b'%', _]);
    if path.as_bytes().windows(2).all(is_plain) {
        return Cow::Borrowed(path);
    }
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    if decoded.contains("//") || decoded.contains("/.") { Cow::Owned(resolved(&decoded)) } else { decoded }
}

fn resolved(path: &str) -> String {
    let mut kept = String::with_capacity(path.len());
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => kept.truncate(kept.rfind('/').unwrap_or(0)),
            segment => {
                kept.push('/');
                kept.push_str(segment);
            }
        }
    }
    if path.rsplit('/').next().is_some_and(|last| matches!(last, "" | "." | "..")) {
        kept.push('/');
    }
    kept
}
