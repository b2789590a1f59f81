//! Offsets of values in a JSON text that has been read without error.

use core::ops::Range;

use super::string::end_of_string;

/// The offsets of the value of the member whose key is `name`. `None` if `name` is a copy and not the part of `text` between
/// the key's quotes.
pub(crate) fn span_of_member(text: &str, name: &str) -> Option<Range<usize>> {
    let offset = (name.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let bytes = text.as_bytes();
    let key_end = offset.checked_add(name.len())?;
    if bytes.get(key_end) != Some(&b'"') {
        return None;
    }
    let colon = skip_blanks(bytes, key_end + 1);
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let start = skip_blanks(bytes, colon + 1);
    let end = value_end(bytes, start);
    (start < end).then_some(start..end)
}

fn skip_blanks(bytes: &[u8], from: usize) -> usize {
    let blanks = bytes.iter().skip(from).take_while(|byte| byte.is_ascii_whitespace());
    from + blanks.count()
}

/// The offset behind the value that starts at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(bytes, at + 1).unwrap_or(bytes.len());
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' | b',' if depth == 0 => return at,
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ if depth == 0 && byte.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
    }
    at
}
