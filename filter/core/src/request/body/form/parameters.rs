//! Header values with parameters, such as `form-data; name="model"`.

/// A parameter.
pub(super) struct Parameter<'a> {
    /// The name, which is compared in any case.
    pub(super) name: &'a str,
    /// The value between its quotes, if it has some.
    pub(super) value: &'a str,
}

/// The value before the parameters.
pub(super) fn kind(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

/// The parameters; `None` in place of one that servers may read in several ways, and nothing behind it.
pub(super) fn parameters(value: &str) -> impl Iterator<Item = Option<Parameter<'_>>> {
    let mut rest = value.split_once(';').map(|(_, rest)| rest);
    core::iter::from_fn(move || {
        // A semicolon at the end has no parameter behind it.
        let text = rest.filter(|rest| !rest.trim().is_empty())?;
        let (parameter, behind) = parameter(text).unzip();
        rest = behind.flatten();
        Some(parameter)
    })
}

/// The parameter that `text` begins with, and the text behind its semicolon.
fn parameter(text: &str) -> Option<(Parameter<'_>, Option<&str>)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim_start();
    let (value, behind) = if let Some(quoted) = value.strip_prefix('"') {
        let (value, behind) = quoted.split_at_checked(end_of_quoted(quoted)?)?;
        let behind = behind.strip_prefix('"')?.trim_start();
        (value, if behind.is_empty() { None } else { Some(behind.strip_prefix(';')?) })
    } else {
        let (value, behind) =
            value.split_once(';').map_or((value, None), |(value, rest)| (value, Some(rest)));
        (Some(value.trim_end()).filter(|value| is_token(value))?, behind)
    };
    is_token(name).then_some((Parameter { name, value }, behind))
}

/// The offset of the closing quote. A quote behind a backslash does not close; behind two, servers differ.
fn end_of_quoted(quoted: &str) -> Option<usize> {
    let bytes = quoted.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' if at.checked_sub(1).and_then(|before| bytes.get(before)) == Some(&b'\\') => return None,
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether the text is a token of HTTP (RFC 9110).
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
