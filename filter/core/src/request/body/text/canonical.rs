//! JSON as the EPP's encoder writes it: without blanks, members sorted by key and the last of equal ones kept, `<`, `>`,
//! `&`, U+2028 and U+2029 escaped, every number as a 64-bit float.
//!
//! A beginning of the text is kept, the rest is counted. The members of an object may still change places, so as many bytes of
//! each are kept as of the whole object, [in a bounded buffer](super::members). Behind the kept part, members with equal keys
//! are all counted: to recognize them, their names would have to be kept.

use serde::de::{MapAccess, SeqAccess};

use super::go_number::write_go_number;
use super::members::Kept;
use crate::json::{LONGEST_NUMBER, Number, Reader, Str, element, key, value};
use crate::request::body::field::Scope;
use crate::request::prompt::Text;

/// Reads the value of the member whose key was just read.
pub(in crate::request::body) fn member<'a, A: MapAccess<'a>>(
    object: &mut A,
    scope: &Scope<'_, 'a>,
) -> Result<Text<'a>, A::Error> {
    // Four bytes distinguish null, arrays and others.
    let mut kept = Kept::new(scope.options.keep_bytes.max(4));
    let bytes = value(object, Canonical { kept: &mut kept })?;
    Ok(Text { kept: kept.finish().into(), bytes })
}

pub(in crate::request::body) fn is_null(text: &Text<'_>) -> bool {
    &*text.kept == b"null"
}

pub(in crate::request::body) fn is_array(text: &Text<'_>) -> bool {
    text.kept.starts_with(b"[")
}

pub(in crate::request::body) fn is_empty_array(text: &Text<'_>) -> bool {
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
        self.kept.put(write_go_number(value, &mut [0; LONGEST_NUMBER]))
    }

    fn string(self, value: Str<'a, '_>) -> u64 {
        self.kept.string(&value)
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<u64, A::Error> {
        let kept = self.kept;
        let mut length = kept.put(b"[");
        let mut any = false;
        loop {
            let before = kept.len();
            let comma = if any { kept.put(b",") } else { 0 };
            let Some(element) = element(&mut array, Canonical { kept: &mut *kept })? else {
                kept.truncate(before);
                return Ok(length + kept.put(b"]"));
            };
            length += comma + element;
            any = true;
        }
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<u64, A::Error> {
        let kept = self.kept;
        let mut open = kept.open_object();
        while let Some(name) = key(&mut object)? {
            let begun = kept.begin_member(&mut open, name);
            let bytes = value(&mut object, Canonical { kept: &mut *kept })?;
            kept.end_member(&mut open, begun, bytes);
        }
        Ok(kept.close_object(open))
    }
}
