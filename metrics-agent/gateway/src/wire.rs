//! Protobuf messages, read and edited field by field on the wire.
//!
//! Decoding a message with generated types loses the fields that these types do not have. Envoy Gateway may
//! be newer than this agent, so its messages are edited in place: fields that are not named here stay, byte
//! for byte. Nothing recurses, so a nested message costs no stack.

use core::fmt;
use std::borrow::Cow;

use endpoint_picker::protobuf::{self, Payload, Value};

/// A message that is not valid protobuf, or has a group, which proto3 does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a valid protobuf message")
    }
}

impl core::error::Error for Malformed {}

impl From<protobuf::Malformed> for Malformed {
    fn from(_: protobuf::Malformed) -> Self {
        Self
    }
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The number, from 1 to 2^29 - 1.
    pub number: u32,
    /// The value.
    pub value: Value<'a>,
    /// The field with its key, as it is in the message.
    pub whole: &'a [u8],
}

impl<'a> Field<'a> {
    /// The text, bytes or message; empty for a number.
    pub fn bytes(self) -> &'a [u8] {
        match self.value {
            Value::Payload(payload) => payload.arrived,
            Value::Number(_) | Value::Fixed => &[],
        }
    }
}

/// A valid message. It takes no memory of its own: each use finds the fields again, because a field may have
/// two bytes.
#[derive(Clone, Copy, Debug)]
pub struct WireMessage<'a>(&'a [u8]);

/// The fields of a message, in its order.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let (field, rest) = read_field(self.0).ok()?;
        self.0 = rest;
        Some(field)
    }
}

impl<'a> WireMessage<'a> {
    /// Examines the fields of a message, but not those of nested messages.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = read_field(rest)?;
        }
        Ok(Self(bytes))
    }

    /// The fields, in the order of the message.
    pub fn fields(self) -> Fields<'a> {
        Fields(self.0)
    }

    /// Whether the message has this field.
    pub fn has(self, number: u32) -> bool {
        self.fields().any(|field| field.number == number)
    }

    /// The texts, bytes or messages of a repeated field.
    pub fn all(self, number: u32) -> impl Iterator<Item = &'a [u8]> {
        self.fields().filter_map(move |field| match field.value {
            Value::Payload(payload) if field.number == number => Some(payload.arrived),
            Value::Payload(_) | Value::Number(_) | Value::Fixed => None,
        })
    }

    /// A text; its last occurrence counts. `None`: there is none, or it is not UTF-8.
    pub fn text(self, number: u32) -> Option<&'a str> {
        self.all(number).last().and_then(|bytes| core::str::from_utf8(bytes).ok())
    }

    /// A number; its last occurrence counts.
    pub fn number(self, number: u32) -> Option<u64> {
        let numbers = self.fields().filter_map(|field| match field.value {
            Value::Number(value) if field.number == number => Some(value),
            Value::Number(_) | Value::Payload(_) | Value::Fixed => None,
        });
        numbers.last()
    }

    /// A message. Occurrences of one message are merged, and their concatenation is the merged message.
    pub fn message(self, number: u32) -> Option<Cow<'a, [u8]>> {
        self.all(number).map(Cow::Borrowed).reduce(|mut merged, next| {
            merged.to_mut().extend_from_slice(&next);
            merged
        })
    }

    /// The number in a `UInt32Value` or `UInt64Value`.
    pub fn wrapped_number(self, number: u32) -> Result<Option<u64>, Malformed> {
        let Some(wrapper) = self.message(number) else { return Ok(None) };
        Ok(Some(WireMessage::read(&wrapper)?.number(1).unwrap_or(0)))
    }

    /// The message without these fields.
    pub fn without(self, numbers: &[u32]) -> Builder {
        let mut rest = Builder::default();
        self.fields().filter(|field| !numbers.contains(&field.number)).for_each(|field| rest.copy(&field));
        rest
    }

    /// The message with each occurrence of a field replaced by what `edit` returns, at its place.
    pub fn map<E>(
        self,
        number: u32,
        mut edit: impl FnMut(&'a [u8]) -> Result<Cow<'a, [u8]>, E>,
    ) -> Result<Vec<u8>, E> {
        let mut edited = Builder::default();
        for field in self.fields() {
            match field.value {
                Value::Payload(payload) if field.number == number => {
                    edited.put_bytes(number, &edit(payload.arrived)?);
                }
                Value::Payload(_) | Value::Number(_) | Value::Fixed => edited.copy(&field),
            }
        }
        Ok(edited.into_bytes())
    }
}

/// The first field, and the bytes after it.
fn read_field(bytes: &[u8]) -> Result<(Field<'_>, &[u8]), Malformed> {
    let mut message = Payload::new(bytes, bytes.len());
    let (number, value) = message.next_field()?.ok_or(Malformed)?;
    let rest = message.arrived;
    let (whole, _) = bytes.split_at(bytes.len() - rest.len());
    Ok((Field { number, value, whole }, rest))
}

/// Writes a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Builder(Vec<u8>);

impl Builder {
    /// A message that continues these bytes.
    pub fn after(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Appends a field of another message.
    pub fn copy(&mut self, field: &Field<'_>) {
        self.0.extend_from_slice(field.whole);
    }

    /// Appends a text, bytes or a message.
    pub fn put_bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put_varint(u64::from(number) << 3 | 2);
        self.put_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Appends an integer, a boolean or an enum.
    pub fn put_number(&mut self, number: u32, value: u64) {
        self.put_varint(u64::from(number) << 3);
        self.put_varint(value);
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(lowest_bits(value) | 0x80);
            value >>= 7;
        }
        self.0.push(lowest_bits(value));
    }

    /// The same with a text, bytes or a message.
    #[must_use]
    pub fn bytes(mut self, number: u32, bytes: impl AsRef<[u8]>) -> Self {
        self.put_bytes(number, bytes.as_ref());
        self
    }

    /// The same with an integer, a boolean or an enum.
    #[must_use]
    pub fn number(mut self, number: u32, value: u64) -> Self {
        self.put_number(number, value);
        self
    }

    /// The same with a `UInt32Value`.
    #[must_use]
    pub fn wrapped_number(self, number: u32, value: u32) -> Self {
        self.bytes(number, Self::default().number(1, value.into()))
    }

    /// The message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The lowest seven bits.
fn lowest_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

impl AsRef<[u8]> for Builder {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut sample = Builder::default().bytes(1, "name").number(2, 300).bytes(4, [8, 1]).into_bytes();
        // Fields of fixed length: number 5 with eight bytes and number 6 with four.
        sample.extend([5 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8, 6 << 3 | 5, 1, 2, 3, 4]);
        Builder::after(sample).bytes(4, [16, 2]).bytes(7, "a").bytes(7, "b").into_bytes()
    }

    #[test]
    fn fields_are_found_and_occurrences_of_a_message_are_merged() {
        let sample = sample();
        let message = WireMessage::read(&sample).unwrap();
        assert_eq!((message.text(1), message.number(2)), (Some("name"), Some(300)));
        assert_eq!((message.text(7), message.all(7).count()), (Some("b"), 2));
        assert_eq!(message.message(4).unwrap(), [8, 1, 16, 2].as_slice());
        assert_eq!((message.has(6), message.has(8), message.message(8)), (true, false, None));
        assert_eq!(message.wrapped_number(4), Ok(Some(1)));
    }

    #[test]
    fn an_edit_keeps_all_other_bytes() {
        let sample = sample();
        let message = WireMessage::read(&sample).unwrap();
        assert_eq!(message.without(&[]).into_bytes(), sample);
        let same: Result<_, Malformed> = message.map(4, |bytes| Ok(bytes.into()));
        assert_eq!(same.unwrap(), sample);
        let edited: Result<_, Malformed> = message.map(7, |_| Ok(Cow::Borrowed(b"longer")));
        let edited = edited.unwrap();
        let edited = WireMessage::read(&edited).unwrap();
        assert_eq!(edited.all(7).collect::<Vec<_>>(), [b"longer", b"longer"]);
        assert_eq!(edited.without(&[7]), message.without(&[7]));
    }

    #[test]
    fn a_message_takes_no_memory_however_many_fields_it_has() {
        fn owns_nothing<T: Copy>() {}
        owns_nothing::<WireMessage<'_>>();
        owns_nothing::<Field<'_>>();
        let tiny = [5 << 3, 1].repeat(1000);
        let message = WireMessage::read(&tiny).unwrap();
        assert_eq!((size_of_val(&message), message.fields().count()), (size_of::<&[u8]>(), 1000));
        assert_eq!((message.number(5), message.number(6)), (Some(1), None));
    }

    #[test]
    fn what_is_not_protobuf_is_refused() {
        let sample = sample();
        let mut refused = 0;
        for end in 0..sample.len() {
            refused += usize::from(WireMessage::read(&sample[..end]).is_err());
        }
        assert!(refused > sample.len() / 2, "{refused}");
        for malformed in [
            // A length beyond the end, and one beyond all memory.
            &[0x0a, 5, 1][..],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            // A group, and an unknown type.
            &[0x0b, 0x0c],
            &[0x0e],
            // The number 0, a number above 2^29, and a varint of eleven bytes.
            &[0x02, 0],
            &[0xf8, 0xff, 0xff, 0xff, 0xff, 1, 0],
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(WireMessage::read(malformed).unwrap_err(), Malformed, "{malformed:?}");
        }
        let largest = Builder::default().number(1, u64::MAX).into_bytes();
        assert_eq!(WireMessage::read(&largest).unwrap().number(1), Some(u64::MAX));
    }
}
