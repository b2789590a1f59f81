//! Arrays and objects while they are read.

use super::Result;
use super::number::short_integer;
use super::parser::Parser;
use super::value::Reader;

/// An array while it is read.
pub(crate) struct Array<'p, 'a> {
    pub(super) parser: &'p mut Parser<'a>,
    pub(super) is_first: bool,
}

impl<'a> Array<'_, 'a> {
    /// The next element if it is an integer between commas or brackets without blanks, as in lists of thousands; `None`
    /// if it is to be read as any other.
    #[inline]
    pub(super) fn integer(&mut self) -> Option<u64> {
        let Parser { text, at, .. } = self.parser;
        let rest = text.as_bytes().get(*at..)?.strip_prefix(b",").filter(|_| !self.is_first)?;
        let (integer, length) = short_integer(rest)?;
        matches!(rest.get(length), Some(b',' | b']')).then(|| {
            *at += 1 + length;
            integer
        })
    }

    /// Reads the next element.
    #[inline]
    pub(super) fn element<R: Reader<'a>>(&mut self, reader: R) -> Result<Option<R::Value>> {
        match self.first_byte()? {
            Some(first) => self.parser.value_of(first, reader).map(Some),
            None => Ok(None),
        }
    }

    /// Moves to the next element; returns its first byte.
    #[inline]
    fn first_byte(&mut self) -> Result<Option<u8>> {
        let Self { parser, is_first } = self;
        let mut first = parser.token();
        if first == b']' {
            return Ok(None);
        }
        if *is_first && parser.at < parser.text.len() {
            *is_first = false;
        } else if first == b',' {
            parser.at += 1;
            first = parser.token();
            if first == b']' {
                return Err(parser.refuse("trailing comma", 0));
            }
        } else {
            return Err(parser.unexpected("expected `,` or `]`", "EOF while parsing a list"));
        }
        Ok(Some(first))
    }

    /// Reads past the rest of the array, and returns the [length](length_of_rest) of it.
    pub(crate) fn length<R: Reader<'a, Value = u64> + Copy>(self, reader: R) -> Result<u64> {
        length_of_rest(self.parser, false, self.is_first, reader)
    }
}

/// An object while it is read.
pub(crate) struct Object<'p, 'a> {
    pub(super) parser: &'p mut Parser<'a>,
    pub(super) is_first: bool,
}

impl<'a> Object<'_, 'a> {
    /// Reads the key of the next member.
    #[inline]
    pub(super) fn key<R: Reader<'a>>(&mut self, reader: R) -> Result<Option<R::Value>> {
        let Self { parser, is_first } = self;
        let mut at_end = "EOF while parsing an object";
        match parser.token() {
            b'}' => return Ok(None),
            b',' if !*is_first => {
                parser.at += 1;
                at_end = "EOF while parsing a value";
                if parser.token() == b'}' {
                    return Err(parser.refuse("trailing comma", 0));
                }
            }
            _ if *is_first => *is_first = false,
            _ => return Err(parser.unexpected("expected `,` or `}`", at_end)),
        }
        if parser.peek(0) != Some(b'"') {
            return Err(parser.unexpected("key must be a string", at_end));
        }
        parser.string(reader).map(Some)
    }

    /// The parser at the value of the member whose key was just read.
    #[inline]
    pub(super) fn at_value(&mut self) -> Result<&mut Parser<'a>> {
        if self.parser.token() != b':' {
            return Err(self.parser.unexpected("expected `:`", "EOF while parsing an object"));
        }
        self.parser.at += 1;
        Ok(&mut *self.parser)
    }

    /// Moves to the value of the next member; returns what `reader` returns for its key, and the first byte of the value.
    #[inline]
    fn first_byte<R: Reader<'a>>(&mut self, reader: R) -> Result<Option<(R::Value, u8)>> {
        let Some(key) = self.key(reader)? else { return Ok(None) };
        Ok(Some((key, self.at_value()?.token())))
    }

    /// Reads past the rest of the object, and returns the [length](length_of_rest) of it.
    pub(crate) fn length<R: Reader<'a, Value = u64> + Copy>(self, reader: R) -> Result<u64> {
        length_of_rest(self.parser, true, self.is_first, reader)
    }
}

/// Reads past the rest of an open array or object, up to the bracket that closes it. Returns the length of this rest
/// with commas and that bracket, without blanks; `reader` returns the lengths of keys and of the values without brackets.
///
/// A loop and not a recursion: a processor predicts the returns of the innermost calls only, and a return from each of
/// many levels would take longer than all else that is done for a bracket.
fn length_of_rest<'a, R>(
    parser: &mut Parser<'a>,
    is_object: bool,
    mut is_first: bool,
    reader: R,
) -> Result<u64>
where
    R: Reader<'a, Value = u64> + Copy,
{
    // A bit for each open array (0) or object (1), the innermost lowest. There are no more than `MAX_NESTED`.
    let mut open = u128::from(is_object);
    let mut levels = 1;
    // A comma or a bracket follows each value, and precedes the first one if it is not the first of all.
    let mut length = u64::from(!is_first);
    loop {
        let is_object = open & 1 == 1;
        let first = if is_object {
            match (Object { parser: &mut *parser, is_first }).first_byte(reader)? {
                Some((key, first)) => {
                    length += key + 1;
                    Some(first)
                }
                None => None,
            }
        } else {
            Array { parser: &mut *parser, is_first }.first_byte()?
        };
        let Some(first) = first else {
            length += u64::from(is_first);
            levels -= 1;
            if levels == 0 {
                return Ok(length);
            }
            parser.close(if is_object { b'}' } else { b']' })?;
            open >>= 1;
            is_first = false;
            continue;
        };
        length += 1;
        is_first = matches!(first, b'[' | b'{');
        if is_first {
            parser.open()?;
            length += 1;
            levels += 1;
            open = open << 1 | u128::from(first == b'{');
        } else {
            length += parser.value_of(first, reader)?;
        }
    }
}
