//! The model in a form (`multipart/form-data`, RFC 7578): uploads of audio and images name theirs in one.
//!
//! The reader is strict: it refuses forms that servers read in several ways, because a server could read
//! another model than the picker. It copies nothing, and reads every byte once.

use core::ops::Range;
use std::borrow::Cow;

use memchr::memchr;
use memchr::memmem::{self, Finder};

use super::{Body, BodyError};

const LINE_END: &[u8] = b"\r\n";

/// The field with the model.
const MODEL: &str = "model";

/// Reads the whole body of a form.
pub(super) fn read<'a>(body: &'a [u8], boundary: &Boundary<'_>) -> Result<Body<'a>, BodyError> {
    let mut model = None;
    read_parts(body, boundary, &mut model).map_err(|cause| BodyError::NotAForm { cause })?;
    let Some(FormField { text, place }) = model else { return Ok(Body { is_form: true, ..Body::default() }) };
    let model = (!text.is_empty()).then_some(Cow::Borrowed(text));
    Ok(Body { is_form: true, model, model_span: Some(place), ..Body::default() })
}

/// Cuts the beginning of a form behind its last complete part, and ends the form there. `None` if no part is
/// complete.
pub(super) fn complete(mut beginning: Vec<u8>, boundary: &Boundary<'_>) -> Option<Vec<u8>> {
    let delimiter = [boundary.delimiter(), LINE_END.to_vec()].concat();
    let last = memmem::rfind(&beginning, &delimiter)?;
    beginning.truncate(last + delimiter.len() - LINE_END.len());
    beginning.extend(b"--");
    Some(beginning)
}

/// The value of a field, and its offsets in the body.
struct FormField<'a> {
    text: &'a str,
    place: Range<usize>,
}

fn read_parts<'a>(
    body: &'a [u8],
    boundary: &Boundary<'_>,
    model: &mut Option<FormField<'a>>,
) -> Result<(), &'static str> {
    let delimiter = boundary.delimiter();
    let finder = Finder::new(&delimiter);
    // The first delimiter has no line end before it.
    let first = delimiter.strip_prefix(LINE_END).unwrap_or_default();
    let mut rest =
        body.strip_prefix(first).ok_or("it does not begin with the boundary of its content type")?;
    loop {
        if rest.starts_with(b"--") {
            return Ok(());
        }
        let part =
            rest.strip_prefix(LINE_END).ok_or("a boundary is followed by something else than a line end")?;
        // Such a boundary shares its line end with the one before it: some servers end the part there.
        if part.starts_with(first) {
            return Err("a part begins with the boundary");
        }
        let end = finder.find(part).ok_or("a part has no end")?;
        let (whole, behind) = part.split_at_checked(end).ok_or("a part has no end")?;
        let (head, value) = Head::read(whole)?;
        if head.is_called(MODEL) {
            if model.is_some() {
                return Err("it has several fields called model");
            }
            let text = head.text(value)?;
            let end = body.len() - behind.len();
            *model = Some(FormField { text, place: end - value.len()..end });
        }
        rest = behind.strip_prefix(&*delimiter).unwrap_or_default();
    }
}

/// Maximum number of bytes of a boundary (RFC 2046).
const LONGEST: usize = 70;

/// The text between two parts.
pub(super) struct Boundary<'h>(&'h str);

/// Whether the body of a request with this content type is a form.
pub(super) fn is_form(content_type: &str) -> bool {
    kind(content_type).eq_ignore_ascii_case("multipart/form-data")
}

impl<'h> Boundary<'h> {
    pub(super) fn of(content_type: &'h str) -> Result<Self, BodyError> {
        Self::read(content_type).map_err(|cause| BodyError::NotAForm { cause })
    }

    fn read(content_type: &'h str) -> Result<Self, &'static str> {
        let mut boundary = None;
        for parameter in parameters(content_type) {
            let parameter = parameter.ok_or("its content type is ambiguous")?;
            match &*parameter.name.to_ascii_lowercase() {
                "boundary" if boundary.is_some() => return Err("its content type has several boundaries"),
                "boundary" => boundary = Some(parameter.value),
                // Servers decode the fields by it.
                "charset" if !parameter.value.eq_ignore_ascii_case("utf-8") => {
                    return Err("its content type has a charset other than utf-8");
                }
                // A parameter in parts or with a charset of its own (RFC 2231).
                name if name.contains('*') => return Err("its content type is ambiguous"),
                _ => {}
            }
        }
        let boundary = boundary.ok_or("its content type has no boundary")?;
        let is_valid = (1..=LONGEST).contains(&boundary.len())
            && boundary.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte))
            && !boundary.ends_with(' ');
        if is_valid { Ok(Self(boundary)) } else { Err("its boundary has more than 70 or invalid characters") }
    }

    /// The bytes between two parts.
    pub(super) fn delimiter(&self) -> Vec<u8> {
        [LINE_END, b"--", self.0.as_bytes()].concat()
    }
}

const MALFORMED: &str = "a header of a part is malformed";
const NAMELESS: &str = "a part has no name";
const AMBIGUOUS: &str = "the name of a part is ambiguous";

/// The head of a part.
#[derive(Default)]
pub(super) struct Head<'a> {
    name: Option<&'a str>,
    is_file: bool,
    content_type: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// Reads the head of a part; returns it and the part's value.
    pub(super) fn read(part: &'a [u8]) -> Result<(Self, &'a [u8]), &'static str> {
        let mut head = Self::default();
        let mut rest = part;
        loop {
            let end = memchr(b'\r', rest).ok_or("the head of a part has no end")?;
            let (line, behind) = rest.split_at_checked(end).unwrap_or_default();
            rest = behind.strip_prefix(LINE_END).ok_or(MALFORMED)?;
            if line.is_empty() {
                return if head.name.is_some() { Ok((head, rest)) } else { Err(NAMELESS) };
            }
            head.add(line)?;
        }
    }

    fn add(&mut self, line: &'a [u8]) -> Result<(), &'static str> {
        let line = core::str::from_utf8(line).map_err(|_| MALFORMED)?;
        let (name, value) = line.split_once(':').ok_or(MALFORMED)?;
        let value = value.trim();
        if !is_token(name) || value.contains(|letter: char| letter.is_control() && letter != '\t') {
            return Err(MALFORMED);
        }
        if name.eq_ignore_ascii_case("content-disposition") {
            return self.add_disposition(value);
        }
        if name.eq_ignore_ascii_case("content-type") {
            return match self.content_type.replace(value) {
                Some(_) => Err("a part has several content types"),
                None => Ok(()),
            };
        }
        let is_plain = ["binary", "8bit", "7bit"].iter().any(|plain| value.eq_ignore_ascii_case(plain));
        if name.eq_ignore_ascii_case("content-transfer-encoding") && !is_plain {
            return Err("a part has a transfer encoding");
        }
        Ok(())
    }

    fn add_disposition(&mut self, value: &'a str) -> Result<(), &'static str> {
        if self.name.is_some() {
            return Err("a part has several names");
        }
        if !kind(value).eq_ignore_ascii_case("form-data") {
            return Err("a part is not form-data");
        }
        for parameter in parameters(value) {
            let parameter = parameter.ok_or(AMBIGUOUS)?;
            match &*parameter.name.to_ascii_lowercase() {
                "name" if self.name.is_some() || parameter.value.contains('\\') => return Err(AMBIGUOUS),
                "name" => self.name = Some(parameter.value),
                "filename" | "filename*" => self.is_file = true,
                _ => return Err(AMBIGUOUS),
            }
        }
        if self.name.is_some() { Ok(()) } else { Err(NAMELESS) }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == Some(name)
    }

    /// The value as text.
    pub(super) fn text(&self, value: &'a [u8]) -> Result<&'a str, &'static str> {
        if self.is_file {
            return Err("its model is a file");
        }
        for parameter in parameters(self.content_type.unwrap_or_default()) {
            let parameter = parameter.ok_or("the content type of a part is ambiguous")?;
            let is_charset = parameter.name.to_ascii_lowercase().starts_with("charset");
            if is_charset
                && !["utf-8", "us-ascii"].iter().any(|name| parameter.value.eq_ignore_ascii_case(name))
            {
                return Err("a part has a charset other than utf-8");
            }
        }
        core::str::from_utf8(value).map_err(|_| "its model is not UTF-8")
    }
}

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
