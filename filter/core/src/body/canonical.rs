//! JSON as the reference's encoder writes it: no blanks, members sorted by key and the last of equal ones kept, `<`, `>`,
//! `&`, U+2028 and U+2029 escaped, every number through a 64-bit float.
//!
//! Only a beginning of the text is kept, the rest is counted; and since an object's members may still change places,
//! each of them is kept as far as the whole object would be. In an object that begins behind what is kept all of equal keys are
//! counted: to tell them apart, their names would have to be kept.

use core::fmt;
use core::ops::Range;
use std::borrow::Cow;
use std::io::Write;

use serde::de::{MapAccess, SeqAccess};

use super::field::Scope;
use super::json_text::{put, string};
use super::value::{Number, Reader, Str, element, key, value};
use crate::prompt::Text;

/// Reads the value of the member whose key was just read.
pub(super) fn member<'a, A: MapAccess<'a>>(
    object: &mut A,
    scope: &Scope<'_, 'a>,
) -> Result<Text<'a>, A::Error> {
    let mut out = Vec::new();
    // The first four bytes tell null and arrays apart.
    let end = scope.options.keep_bytes.max(4);
    let bytes = value(object, Canonical { out: &mut out, end })?;
    Ok(Text { kept: Cow::Owned(out), bytes })
}

pub(super) fn is_null(text: &Text<'_>) -> bool {
    &*text.kept == b"null"
}

pub(super) fn is_array(text: &Text<'_>) -> bool {
    text.kept.starts_with(b"[")
}

pub(super) fn is_empty_array(text: &Text<'_>) -> bool {
    &*text.kept == b"[]"
}

/// Appends a value to `out`, which does not grow beyond `end` by it; gives the length of the whole value.
pub(super) struct Canonical<'s> {
    pub(super) out: &'s mut Vec<u8>,
    pub(super) end: usize,
}

impl<'a> Reader<'a> for Canonical<'_> {
    type Value = u64;

    // Every type is wanted.
    fn other(self) -> u64 {
        0
    }

    fn null(self) -> u64 {
        put(self.out, self.end, b"null")
    }

    fn boolean(self, value: bool) -> u64 {
        put(self.out, self.end, if value { b"true" } else { b"false" })
    }

    fn number(self, value: Number) -> u64 {
        // The longest: sign, 17 digits, point, five zeros after it or an exponent of three digits.
        let mut digits = [0; 32];
        let mut left = &mut digits[..];
        let written = write!(left, "{}", GoFloat(value.as_f64()));
        debug_assert!(written.is_ok(), "{value:?}");
        let length = 32 - left.len();
        put(self.out, self.end, &digits[..length])
    }

    fn string(self, value: Str<'a, '_>) -> u64 {
        string(self.out, self.end, value.as_bytes())
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<u64, A::Error> {
        let Self { out, end } = self;
        let mut length = put(out, end, b"[");
        let mut any = false;
        loop {
            let before = out.len();
            let comma = if any { put(out, end, b",") } else { 0 };
            let Some(element) = element(&mut array, Canonical { out: &mut *out, end })? else {
                out.truncate(before);
                return Ok(length + put(out, end, b"]"));
            };
            length += comma + element;
            any = true;
        }
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<u64, A::Error> {
        let Self { out, end } = self;
        let start = out.len();
        let room = end.saturating_sub(start);
        let mut members: Vec<Member<'a>> = Vec::new();
        let mut sorted = true;
        let mut length = 1;
        out.push(b'{');
        while let Some(name) = key(&mut object)? {
            let from = out.len();
            let end = from.saturating_add(room);
            let mut bytes = string(out, end, name.as_bytes());
            bytes += put(out, end, b":");
            bytes += value(&mut object, Canonical { out: &mut *out, end })?;
            length += bytes + 1;
            if room > 0 {
                sorted = sorted && members.last().is_none_or(|last| last.name < name);
                members.push(Member { name, kept: from..out.len(), bytes });
                out.push(b',');
            }
        }
        if length == 1 {
            out.truncate(start);
            return Ok(put(out, end, b"{}"));
        }
        if sorted {
            out.pop();
            out.push(b'}');
        } else {
            length = sort(out, start, room, members);
        }
        out.truncate(end.max(start));
        Ok(length)
    }
}

/// One member of an object, as it stands in the output for now.
struct Member<'a> {
    name: Cow<'a, str>,
    kept: Range<usize>,
    /// Its whole length.
    bytes: u64,
}

/// Puts the members of the object that begins at `start` in order; gives the object's whole length.
fn sort(out: &mut Vec<u8>, start: usize, room: usize, mut members: Vec<Member<'_>>) -> u64 {
    // A stable sort keeps equal keys in their order, of which only the last one stays.
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let mut object = Vec::with_capacity((out.len() - start).min(room));
    let mut length = 1;
    let mut rest = members.iter().peekable();
    while let Some(member) = rest.next() {
        if rest.peek().is_some_and(|next| next.name == member.name) {
            continue;
        }
        object.push(if length == 1 { b'{' } else { b',' });
        if object.len() < room {
            object.extend_from_slice(&out[member.kept.clone()]);
        }
        length += member.bytes + 1;
    }
    object.push(b'}');
    out.truncate(start);
    out.extend_from_slice(&object);
    length
}

/// A float as Go's encoder writes it: the shortest digits, with an exponent below 1e-6 and from 1e21 on.
struct GoFloat(f64);

impl fmt::Display for GoFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = *self;
        let size = number.abs();
        #[expect(clippy::cast_possible_truncation, reason = "whole and small enough")]
        if number.fract() == 0.0 && size < 1e15 && (size != 0.0 || number.is_sign_positive()) {
            write!(f, "{}", number as i64)
        } else if size != 0.0 && size < 1e-6 {
            write!(f, "{number:e}")
        } else if size >= 1e21 {
            // Rust writes no sign before a positive exponent.
            let text = format!("{number:e}");
            f.write_str(&text.replacen('e', "e+", 1))
        } else {
            write!(f, "{number}")
        }
    }
}
