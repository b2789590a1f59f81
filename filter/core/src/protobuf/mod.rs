//! Messages of Protocol Buffers, read without a schema, without a tree and without a copy.
//!
//! A message may have arrived in part: then its fields are those that have arrived, and the last one may be
//! cut. Groups are refused.

mod scanner;

pub(crate) use scanner::{Field, FieldUse, MessageScanner, Visitor};

/// Maximum number of a field.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) &'static str);

type Result<T> = core::result::Result<T, Malformed>;

/// A message, a text or a packed list, or the part of it that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The bytes that have arrived.
    pub arrived: &'a [u8],
    /// Number of bytes that are still to arrive.
    pub missing: usize,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, a boolean or an enum.
    Number(u64),
    /// A value with a length.
    Payload(Payload<'a>),
    /// A value of four or eight bytes, which is passed over.
    Fixed,
}

impl<'a> Payload<'a> {
    /// The first `length` bytes of a value, of which these have arrived; further bytes do not belong to it.
    pub fn new(bytes: &'a [u8], length: usize) -> Self {
        let arrived = bytes.get(..length).unwrap_or(bytes);
        Self { arrived, missing: length - arrived.len() }
    }

    /// Length of the whole value, in bytes.
    pub(crate) fn len(self) -> usize {
        self.arrived.len().saturating_add(self.missing)
    }

    /// Whether a part is still to arrive.
    pub(crate) fn is_cut(self) -> bool {
        self.missing > 0
    }

    /// The fields of the message, in their order.
    pub(crate) fn fields(self) -> impl Iterator<Item = Result<(u32, Value<'a>)>> {
        self.each(Self::next_field)
    }

    /// The integers of the packed list.
    pub(crate) fn numbers(self) -> impl Iterator<Item = Result<u64>> {
        self.each(Self::number)
    }

    /// The text, up to its last whole character.
    pub(crate) fn text(self) -> Result<&'a str> {
        core::str::from_utf8(self.arrived).or_else(|error| {
            let whole = self.arrived.get(..error.valid_up_to()).unwrap_or_default();
            let is_cut = error.error_len().is_none() && self.is_cut();
            if is_cut {
                Ok(core::str::from_utf8(whole).unwrap_or_default())
            } else {
                Err(Malformed("a text is not UTF-8"))
            }
        })
    }

    /// Reads one item after another, up to the end of the part that has arrived or the first error.
    fn each<T>(mut self, read: impl Fn(&mut Self) -> Result<Option<T>>) -> impl Iterator<Item = Result<T>> {
        core::iter::from_fn(move || {
            if self.arrived.is_empty() {
                return None;
            }
            let item = read(&mut self);
            if !matches!(item, Ok(Some(_))) {
                self.arrived = &[];
            }
            item.transpose()
        })
    }

    /// Reads the next field; `None` if it has not arrived.
    pub fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>> {
        let Some(key) = self.number()? else { return Ok(None) };
        let number = field_number(key)?;
        let value = match key & 7 {
            0 => self.number()?.map(Value::Number),
            1 => self.take(8)?.map(|_| Value::Fixed),
            2 => match self.number()? {
                Some(length) => Some(Value::Payload(self.take_payload(length)?)),
                None => None,
            },
            5 => self.take(4)?.map(|_| Value::Fixed),
            _ => return Err(WIRE_TYPE),
        };
        Ok(value.map(|value| (number, value)))
    }

    /// Reads an integer; `None` if it has not arrived.
    fn number(&mut self) -> Result<Option<u64>> {
        let mut varint = Varint::default();
        for (index, &byte) in self.arrived.iter().enumerate() {
            if let Some(number) = varint.push(byte)? {
                self.arrived = self.arrived.get(index + 1..).unwrap_or_default();
                return Ok(Some(number));
            }
        }
        if self.is_cut() { Ok(None) } else { Err(CUT) }
    }

    /// Takes the next bytes; `None` if they have not arrived.
    fn take(&mut self, count: usize) -> Result<Option<&'a [u8]>> {
        if count > self.len() {
            return Err(TOO_LONG);
        }
        Ok(self.arrived.split_at_checked(count).map(|(taken, rest)| {
            self.arrived = rest;
            taken
        }))
    }

    /// Takes a value of this length, or the part of it that has arrived.
    fn take_payload(&mut self, length: u64) -> Result<Self> {
        let length = usize::try_from(length).ok().filter(|&length| length <= self.len()).ok_or(TOO_LONG)?;
        let taken = Self::new(self.arrived, length);
        self.arrived = self.arrived.get(taken.arrived.len()..).unwrap_or_default();
        self.missing -= taken.missing;
        Ok(taken)
    }
}

const CUT: Malformed = Malformed("a field is cut off");
const TOO_LONG: Malformed = Malformed("a field is longer than its message");
const WIRE_TYPE: Malformed = Malformed("a field has a wire type that is not supported");

/// The number of a field by its key.
fn field_number(key: u64) -> Result<u32> {
    let number = Some(key >> 3).filter(|number| (1..=MAX_FIELD).contains(number));
    number.and_then(|number| u32::try_from(number).ok()).ok_or(Malformed("a field has an invalid number"))
}

/// An integer whose bytes come one by one.
#[derive(Clone, Copy, Debug, Default)]
struct Varint {
    number: u64,
    shift: u32,
}

impl Varint {
    /// Adds a byte; returns the integer if the byte is its last.
    fn push(&mut self, byte: u8) -> Result<Option<u64>> {
        // The tenth byte has one bit.
        if self.shift > 63 || self.shift == 63 && byte > 1 {
            return Err(Malformed("an integer has more than 64 bits"));
        }
        self.number |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        Ok((byte & 0x80 == 0).then_some(self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn whole(bytes: &[u8]) -> Payload<'_> {
        Payload::new(bytes, bytes.len())
    }

    fn fields(payload: Payload<'_>) -> Result<Vec<(u32, Value<'_>)>> {
        payload.fields().collect()
    }

    #[test]
    fn fields_of_every_wire_type_are_read_in_order() {
        let bytes =
            b"\x08\x96\x01\x12\x02hi\x1d\x01\x02\x03\x04\x21\x01\x02\x03\x04\x05\x06\x07\x08\x80\x01\x07";
        let expected = [
            (1, Value::Number(150)),
            (2, Value::Payload(whole(b"hi"))),
            (3, Value::Fixed),
            (4, Value::Fixed),
            (16, Value::Number(7)),
        ];
        assert_eq!(fields(whole(bytes)).unwrap(), expected);
    }

    #[test]
    fn the_beginning_of_a_message_has_the_first_fields() {
        let bytes = b"\x08\x96\x01\x12\x05hello\x18\x01";
        let all = fields(whole(bytes)).unwrap();
        for cut in 0..bytes.len() {
            let some = fields(Payload::new(&bytes[..cut], bytes.len())).unwrap();
            for (&(number, value), &(same, other)) in some.iter().zip(&all) {
                assert_eq!(number, same);
                if let (Value::Payload(part), Value::Payload(text)) = (value, other) {
                    assert!(text.arrived.starts_with(part.arrived) && part.len() == text.len(), "{cut}");
                } else {
                    assert_eq!(value, other);
                }
            }
            assert!(cut < bytes.len() - 1 || some.len() == 2, "{cut}: {some:?}");
            if cut > 0 {
                assert!(fields(whole(&bytes[..cut])).is_err() || [3, 10].contains(&cut), "{cut}");
            }
        }
    }

    #[test]
    fn messages_that_are_malformed_are_refused_with_the_reason() {
        for (bytes, reason) in [
            (&b"\x00\x01"[..], "a field has an invalid number"),
            (b"\xf8\xff\xff\xff\x7f\x01", "a field has an invalid number"),
            (b"\x0b\x0c", "a field has a wire type that is not supported"),
            (b"\x12\x03hi", "a field is longer than its message"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a field is longer than its message"),
            (b"\x0d\x01\x02\x03", "a field is longer than its message"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "an integer has more than 64 bits"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "an integer has more than 64 bits"),
            (b"\x08\x80", "a field is cut off"),
        ] {
            assert_eq!(fields(whole(bytes)), Err(Malformed(reason)), "{bytes:?}");
        }
        let long = Payload::new(b"\x12\x08hi", 9);
        assert_eq!(fields(long), Err(TOO_LONG), "longer than all that will arrive");
    }

    #[test]
    fn a_text_ends_with_its_last_whole_character() {
        let text = "aé€".as_bytes();
        for (cut, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (5, "aé"), (6, "aé€")] {
            assert_eq!(Payload::new(&text[..cut], text.len()).text(), Ok(expected));
        }
        assert!(whole(&text[..2]).text().is_err());
        assert!(Payload::new(b"a\xff", 9).text().is_err());
    }

    #[test]
    fn packed_integers_are_read_up_to_the_last_whole_one() {
        let bytes = b"\x01\x96\x01\x00";
        assert_eq!(whole(bytes).numbers().collect::<Result<Vec<_>>>().unwrap(), [1, 150, 0]);
        assert_eq!(Payload::new(&bytes[..2], 4).numbers().collect::<Result<Vec<_>>>().unwrap(), [1]);
        assert!(whole(&bytes[..2]).numbers().any(|number| number.is_err()));
    }
}
