//! Values of MessagePack in borrowed bytes.

use rmp::Marker;
use rmp::decode::{RmpRead, read_marker};

/// Bytes that are not a value, or that end within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A value. Of an array or a map it is the head, and its elements follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Nil,
    Unsigned(u64),
    Negative(i64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// The number of elements.
    Array(u32),
    /// The number of pairs.
    Map(u32),
    /// A boolean, a float or an extension.
    Other,
}

/// Reads values one after another.
#[derive(Clone, Debug)]
pub(super) struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next value.
    pub(super) fn next(&mut self) -> Result<Value<'a>, Malformed> {
        let value = match read_marker(&mut self.0).map_err(|_| Malformed)? {
            Marker::Null => Value::Nil,
            Marker::FixPos(value) => Value::Unsigned(value.into()),
            Marker::FixNeg(value) => Value::Negative(value.into()),
            Marker::U8 => Value::Unsigned(self.u8()?.into()),
            Marker::U16 => Value::Unsigned(self.u16()?.into()),
            Marker::U32 => Value::Unsigned(self.u32()?.into()),
            Marker::U64 => Value::Unsigned(self.0.read_data_u64().map_err(|_| Malformed)?),
            Marker::I8 => signed(self.0.read_data_i8().map_err(|_| Malformed)?.into()),
            Marker::I16 => signed(self.0.read_data_i16().map_err(|_| Malformed)?.into()),
            Marker::I32 => signed(self.0.read_data_i32().map_err(|_| Malformed)?.into()),
            Marker::I64 => signed(self.0.read_data_i64().map_err(|_| Malformed)?),
            Marker::FixStr(length) => Value::Text(self.bytes(length.into())?),
            Marker::Str8 => Value::Text(self.u8().and_then(|length| self.bytes(length.into()))?),
            Marker::Str16 => Value::Text(self.u16().and_then(|length| self.bytes(length.into()))?),
            Marker::Str32 => Value::Text(self.u32().and_then(|length| self.bytes(length))?),
            Marker::Bin8 => Value::Bytes(self.u8().and_then(|length| self.bytes(length.into()))?),
            Marker::Bin16 => Value::Bytes(self.u16().and_then(|length| self.bytes(length.into()))?),
            Marker::Bin32 => Value::Bytes(self.u32().and_then(|length| self.bytes(length))?),
            Marker::FixArray(length) => Value::Array(length.into()),
            Marker::Array16 => Value::Array(self.u16()?.into()),
            Marker::Array32 => Value::Array(self.u32()?),
            Marker::FixMap(length) => Value::Map(length.into()),
            Marker::Map16 => Value::Map(self.u16()?.into()),
            Marker::Map32 => Value::Map(self.u32()?),
            Marker::True | Marker::False => Value::Other,
            Marker::F32 => self.other(4)?,
            Marker::F64 => self.other(8)?,
            // The type of an extension is one byte.
            Marker::FixExt1 => self.other(2)?,
            Marker::FixExt2 => self.other(3)?,
            Marker::FixExt4 => self.other(5)?,
            Marker::FixExt8 => self.other(9)?,
            Marker::FixExt16 => self.other(17)?,
            Marker::Ext8 => self.u8().and_then(|length| self.extension(length.into()))?,
            Marker::Ext16 => self.u16().and_then(|length| self.extension(length.into()))?,
            Marker::Ext32 => self.u32().and_then(|length| self.extension(length))?,
            Marker::Reserved => return Err(Malformed),
        };
        Ok(value)
    }

    /// The bytes of the next value with all its elements. Its nesting takes no stack.
    pub(super) fn whole(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.0;
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            left += match self.next()? {
                Value::Array(length) => length.into(),
                Value::Map(length) => 2 * u64::from(length),
                _ => 0,
            };
            // Each element has one byte at least.
            if left > self.0.len() as u64 {
                return Err(Malformed);
            }
        }
        start.get(..start.len() - self.0.len()).ok_or(Malformed)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.read_data_u8().map_err(|_| Malformed)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.0.read_data_u16().map_err(|_| Malformed)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.read_data_u32().map_err(|_| Malformed)
    }

    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn other(&mut self, length: u32) -> Result<Value<'a>, Malformed> {
        self.bytes(length).map(|_| Value::Other)
    }

    fn extension(&mut self, length: u32) -> Result<Value<'a>, Malformed> {
        self.other(1).and_then(|_| self.other(length))
    }
}

fn signed<'a>(value: i64) -> Value<'a> {
    u64::try_from(value).map_or(Value::Negative(value), Value::Unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_and_sign_are_read() {
        for (bytes, value) in [
            (&[5][..], Value::Unsigned(5)),
            (&[0xff], Value::Negative(-1)),
            (&[0xcc, 200], Value::Unsigned(200)),
            (&[0xcd, 1, 0], Value::Unsigned(256)),
            (&[0xd0, 0x80], Value::Negative(-128)),
            (&[0xd1, 1, 0], Value::Unsigned(256)),
            (&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255], Value::Unsigned(u64::MAX)),
            (&[0xd3, 255, 255, 255, 255, 255, 255, 255, 254], Value::Negative(-2)),
        ] {
            assert_eq!(Values::new(bytes).next(), Ok(value), "{bytes:?}");
        }
    }

    #[test]
    fn a_value_ends_where_its_last_element_ends() {
        // {"a": [1, nil], "b": ext(1, [0, 0])}, then 7
        let bytes = [0x82, 0xa1, b'a', 0x92, 1, 0xc0, 0xa1, b'b', 0xd5, 1, 0, 0, 7];
        let mut values = Values::new(&bytes);
        assert_eq!(values.whole(), Ok(&bytes[..12]));
        assert_eq!(values.next(), Ok(Value::Unsigned(7)));
        assert_eq!(values.next(), Err(Malformed));
    }

    #[test]
    fn announced_lengths_are_compared_with_the_bytes() {
        for bytes in [
            &[0xdd, 255, 255, 255, 255, 0][..],
            &[0xdf, 255, 255, 255, 255, 0],
            &[0xc6, 255, 255, 255, 255, 0],
            &[0xc1],
            &[0x92, 1],
            &[],
        ] {
            assert_eq!(Values::new(bytes).whole(), Err(Malformed), "{bytes:?}");
        }
        // Deep nesting: a million arrays of one array.
        assert_eq!(Values::new(&vec![0x91; 1_000_000]).whole(), Err(Malformed));
    }
}
