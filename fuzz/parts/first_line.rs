//! Inputs that begin with a line of text.

/// The first line, and what comes after it.
pub fn first_line(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    Some((core::str::from_utf8(&input[..end]).ok()?, &input[end + 1..]))
}
