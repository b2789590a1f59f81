//! Fields of a message that comes in chunks, of which nothing is kept.

use super::{Varint, field_number};

/// The use of a value with a length, in the outermost message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldUse {
    /// It is a message whose integers are read.
    Message,
    /// Its bytes are read.
    Bytes,
    /// It is passed over.
    Pass,
}

/// The place of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    /// Number of the message that the field is in; 0 for the outermost one.
    pub(crate) parent: u32,
    /// Number of the field.
    pub(crate) number: u32,
}

/// The receiver of the fields.
pub(crate) trait Visitor {
    /// The use of a field of the outermost message.
    fn field_use(&self, number: u32) -> FieldUse;

    /// An integer has come.
    fn number(&mut self, field: Field, value: u64);

    /// The next bytes of the field whose bytes are read have come.
    fn bytes(&mut self, bytes: &[u8]);
}

/// A message as far as it has come. The rest of a malformed message is ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageScanner {
    state: ScannerState,
    varint: Varint,
    /// The inner message that is open: its number, and the bytes of it that are to come.
    inner: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScannerState {
    /// The key of a field comes next.
    #[default]
    Key,
    /// An integer comes next.
    Number(u32),
    /// The length of a value comes next.
    Length(u32),
    /// This number of bytes is passed over.
    Pass(u64),
    /// This number of bytes of a field is read.
    Bytes(u64),
    Malformed,
}

impl MessageScanner {
    /// Reads the next chunk.
    pub(crate) fn read(&mut self, mut chunk: &[u8], visitor: &mut impl Visitor) {
        while !chunk.is_empty() {
            let taken = match self.state {
                ScannerState::Malformed => return,
                ScannerState::Pass(left) => {
                    let taken = shorter(left, chunk.len());
                    self.state = rest_of(left, taken, ScannerState::Pass);
                    taken
                }
                ScannerState::Bytes(left) => {
                    let taken = shorter(left, chunk.len());
                    visitor.bytes(chunk.get(..taken).unwrap_or_default());
                    self.state = rest_of(left, taken, ScannerState::Bytes);
                    taken
                }
                ScannerState::Key | ScannerState::Number(_) | ScannerState::Length(_) => {
                    let Some(&byte) = chunk.first() else { return };
                    self.read_byte(byte, visitor);
                    1
                }
            };
            chunk = chunk.get(taken..).unwrap_or_default();
            self.leave_inner(taken);
        }
    }

    /// Reads a byte of a key, an integer or a length.
    fn read_byte(&mut self, byte: u8, visitor: &mut impl Visitor) {
        let value = match self.varint.push(byte) {
            Ok(Some(value)) => value,
            Ok(None) => return,
            Err(_) => return self.state = ScannerState::Malformed,
        };
        self.varint = Varint::default();
        self.state = match self.state {
            ScannerState::Key => after_key(value),
            ScannerState::Number(number) => {
                let parent = self.inner.map_or(0, |(parent, _)| parent);
                visitor.number(Field { parent, number }, value);
                ScannerState::Key
            }
            ScannerState::Length(number) if self.inner.is_none() => match visitor.field_use(number) {
                FieldUse::Message => {
                    // One more, since this byte is counted as one of the inner message's.
                    self.inner = Some((number, value.saturating_add(1)));
                    ScannerState::Key
                }
                FieldUse::Bytes => rest_of(value, 0, ScannerState::Bytes),
                FieldUse::Pass => rest_of(value, 0, ScannerState::Pass),
            },
            ScannerState::Length(_) => rest_of(value, 0, ScannerState::Pass),
            ScannerState::Pass(_) | ScannerState::Bytes(_) | ScannerState::Malformed => {
                ScannerState::Malformed
            }
        };
    }

    /// Counts bytes of the inner message, and closes it behind its last.
    fn leave_inner(&mut self, taken: usize) {
        let Some((number, left)) = self.inner else { return };
        match left.checked_sub(taken as u64) {
            Some(0) if self.state == ScannerState::Key && self.varint.shift == 0 => self.inner = None,
            // A field continues behind the end of its message.
            Some(0) | None => self.state = ScannerState::Malformed,
            Some(left) => self.inner = Some((number, left)),
        }
    }
}

fn shorter(left: u64, available: usize) -> usize {
    usize::try_from(left).map_or(available, |left| left.min(available))
}

/// The state after some of these bytes were taken.
fn rest_of(left: u64, taken: usize, state: impl FnOnce(u64) -> ScannerState) -> ScannerState {
    match left.saturating_sub(taken as u64) {
        0 => ScannerState::Key,
        left => state(left),
    }
}

fn after_key(key: u64) -> ScannerState {
    let state = match key & 7 {
        0 => ScannerState::Number,
        1 => |_| ScannerState::Pass(8),
        2 => ScannerState::Length,
        5 => |_| ScannerState::Pass(4),
        _ => return ScannerState::Malformed,
    };
    field_number(key).map_or(ScannerState::Malformed, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    /// The fields of a message in which 1 is a message and 2 is bytes.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Fields {
        numbers: Vec<(u32, u32, u64)>,
        bytes: Vec<u8>,
    }

    impl Visitor for Fields {
        fn field_use(&self, number: u32) -> FieldUse {
            match number {
                1 => FieldUse::Message,
                2 => FieldUse::Bytes,
                _ => FieldUse::Pass,
            }
        }

        fn number(&mut self, Field { parent, number }: Field, value: u64) {
            self.numbers.push((parent, number, value));
        }

        fn bytes(&mut self, bytes: &[u8]) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn read<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Fields {
        let (mut scanner, mut fields) = (MessageScanner::default(), Fields::default());
        for chunk in chunks {
            scanner.read(chunk, &mut fields);
        }
        fields
    }

    #[test]
    fn integers_of_both_levels_and_bytes_are_found_however_the_message_is_cut() {
        let message = b"\x18\x96\x01\x0a\x0a\x0a\x03\x08\x01\x02\x15\x01\x02\x03\x04\x0a\x00\x0a\x03\x20\xac\x02\x12\x03abc\x22\x02\x08\x05\x28\x07";
        let whole = read([&message[..]]);
        assert_eq!(whole.numbers, [(0, 3, 150), (1, 4, 300), (0, 5, 7)]);
        assert_eq!(whole.bytes, b"abc");
        for cut in 0..message.len() {
            let (first, rest) = message.split_at(cut);
            assert_eq!(read([first, rest]), whole, "{cut}");
        }
        assert_eq!(read(message.chunks(1)), whole);
    }

    #[test]
    fn nothing_is_read_behind_a_malformed_field() {
        for message in [
            &b"\x0b\x18\x01"[..],
            b"\x00\x18\x01",
            b"\x0a\x02\x0a\x02\x18\x01\x18\x01",
            b"\x0a\x01\x18\x01\x18\x01",
            b"\x0a\x02\x1d\x01\x18\x01\x18\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x18\x01",
        ] {
            assert_eq!(read([message]), Fields::default(), "{message:?}");
        }
    }
}
