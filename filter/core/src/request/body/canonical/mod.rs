//! JSON as the EPP's encoder writes it: without blanks, members sorted by key and the last of equal ones
//! kept, `<`, `>`, `&`, U+2028 and U+2029 escaped, every number as a 64-bit float.
//!
//! A beginning of the text is kept, the rest is counted. The members of an object may still change places, so
//! the limit of the whole object holds for each member, [in a bounded buffer](Kept). Behind the kept part,
//! members with equal keys are all counted: to recognize them, their names would have to be kept.

mod kept;

use self::kept::Kept;
use super::json_text::{self, write_go_number};
use crate::json::{self, Array, MAX_NUMBER_LENGTH, Number, Object, Reader, Str, element, key, value};
use crate::request::body::field::Scope;
use crate::request::prompt::Text;

/// Reads the value of the member whose key was just read.
pub(super) fn member<'a>(object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<Text<'a>> {
    // Four bytes distinguish null, arrays and others.
    let mut kept = Kept::new(scope.options.keep_bytes.max(4));
    let bytes = value(object, Canonical { kept: &mut kept })?;
    Ok(Text { kept: kept.finish().into(), bytes })
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

/// Appends a value as far as it is kept; returns the length of the whole value.
struct Canonical<'s, 'a> {
    kept: &'s mut Kept<'a>,
}

impl<'a> Reader<'a> for Canonical<'_, 'a> {
    type Value = u64;

    // Every type has a method.
    fn other(self) -> u64 {
        0
    }

    fn null(self) -> u64 {
        self.kept.put(b"null")
    }

    fn boolean(self, value: bool) -> u64 {
        self.kept.put(if value { b"true" } else { b"false" })
    }

    #[expect(clippy::cast_possible_truncation, reason = "one digit")]
    fn number(self, value: Number) -> u64 {
        if let Number::Unsigned(digit @ 0..10) = value {
            return self.kept.put(&[b'0' + digit as u8]);
        }
        self.kept.put(write_go_number(value, &mut [0; MAX_NUMBER_LENGTH]))
    }

    fn string(self, value: Str<'a, '_>) -> u64 {
        self.kept.string(value.as_bytes())
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<u64> {
        let kept = self.kept;
        let mut length = kept.put(b"[");
        let mut any = false;
        loop {
            if kept.is_full() {
                return Ok(length + array.length(LengthCounter)?);
            }
            let before = kept.len();
            // Only reading shows whether another element follows, so the comma is taken back at the end.
            let comma = if any { kept.put(b",") } else { 0 };
            let Some(element) = element(&mut array, Canonical { kept: &mut *kept })? else {
                kept.truncate(before);
                return Ok(length + kept.put(b"]"));
            };
            length += comma + element;
            any = true;
        }
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<u64> {
        let kept = self.kept;
        if kept.is_full() {
            return LengthCounter.object(object);
        }
        let mut open = kept.open_object();
        while let Some(name) = key(&mut object)? {
            let begun = kept.begin_member(&mut open, name);
            let bytes = if begun.is_kept() {
                value(&mut object, Canonical { kept: &mut *kept })?
            } else {
                value(&mut object, LengthCounter)?
            };
            kept.end_member(&mut open, begun, bytes);
        }
        Ok(kept.close_object(open))
    }
}

/// Counts a value of which nothing is kept: returns the length of its text.
#[derive(Clone, Copy)]
struct LengthCounter;

impl<'a> Reader<'a> for LengthCounter {
    type Value = u64;

    // Every type has a method.
    fn other(self) -> u64 {
        0
    }

    fn null(self) -> u64 {
        4
    }

    fn boolean(self, value: bool) -> u64 {
        if value { 4 } else { 5 }
    }

    fn number(self, value: Number) -> u64 {
        json_text::go_number_length(value)
    }

    fn string(self, value: Str<'a, '_>) -> u64 {
        json_text::string_length(value.as_bytes())
    }

    fn array(self, array: Array<'_, 'a>) -> json::Result<u64> {
        Ok(1 + array.length(self)?)
    }

    fn object(self, object: Object<'_, 'a>) -> json::Result<u64> {
        Ok(1 + object.length(self)?)
    }
}
