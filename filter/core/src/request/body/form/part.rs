//! The head of a part of a form.

use memchr::memchr;

use super::LINE_END;
use super::parameters::{is_token, kind, parameters};

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
