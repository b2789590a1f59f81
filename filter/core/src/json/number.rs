//! Numbers.

use std::io::Write;

use super::parser::Parser;
use super::{MAX_NUMBER_LENGTH, Result};

/// A number, of the type that its spelling has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// An integer of at least 0.
    Unsigned(u64),
    /// An integer below 0.
    Negative(i64),
    /// A number with a fraction or an exponent.
    Decimal(Decimal),
    /// An integer beyond 64 bits, -0, or a number that is not a [`Decimal`] for its size or for its many
    /// digits.
    Float(f64),
}

impl Number {
    /// The number as a double: the EPP decodes every number to one.
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Unsigned(number) => number as f64,
            Self::Negative(number) => number as f64,
            Self::Decimal(number) => number.as_f64(),
            Self::Float(number) => number,
        }
    }
}

/// A number as it is spelled: `integer` times ten to the power of `exponent`, with up to 15 digits and a size
/// from 1e-300 to 1e308, or 0. In these bounds, no other number of so few digits is the same double: its
/// digits are the fewest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decimal {
    pub(crate) is_negative: bool,
    pub(crate) integer: u64,
    pub(crate) exponent: i16,
}

impl Decimal {
    /// The number, if it is in these bounds; `digits` is the number of digits with which `integer` is
    /// written.
    fn new(is_negative: bool, integer: u64, digits: usize, exponent: i32) -> Option<Self> {
        let end = i32::try_from(digits).ok()?.saturating_add(exponent);
        let is_within = digits <= FITTING_DIGITS && integer < 1_000_000_000_000_000;
        let exponent = i16::try_from(exponent).ok()?;
        (is_within && exponent >= -300 && end <= 308).then_some(Self { is_negative, integer, exponent })
    }

    fn as_f64(self) -> f64 {
        let Self { is_negative, integer, exponent } = self;
        let size = exact(integer, exponent.into()).unwrap_or_else(|| {
            // The buffer has room for 15 digits and the exponent.
            let mut buffer = [0; MAX_NUMBER_LENGTH];
            let mut left = &mut buffer[..];
            let written = write!(left, "{integer}e{exponent}");
            debug_assert!(written.is_ok(), "{self:?}");
            let length = MAX_NUMBER_LENGTH - left.len();
            let text = buffer.get(..length).and_then(|text| core::str::from_utf8(text).ok());
            text.and_then(|text| text.parse().ok()).unwrap_or_default()
        });
        if is_negative { -size } else { size }
    }
}

/// Maximum number of digits that always fit into 64 bits.
const FITTING_DIGITS: usize = 19;

/// The digits that `text` begins with: the integer that they are, unless there are more than
/// [`FITTING_DIGITS`], and their number. `before` is the integer before them.
#[inline]
fn digits(text: &[u8], before: u64) -> (u64, usize) {
    let (mut integer, mut count) = (before, 0);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        integer = integer.wrapping_mul(10).wrapping_add(digit.into());
        count += 1;
    }
    (integer, count)
}

/// The integer that `text` begins with, and its length, if it certainly fits into 64 bits. A point or an
/// exponent may follow.
#[inline]
pub(super) fn short_integer(text: &[u8]) -> Option<(u64, usize)> {
    let (integer, count) = digits(text, 0);
    let begins_with_zero = count > 1 && text.first() == Some(&b'0');
    (!begins_with_zero && (1..=FITTING_DIGITS).contains(&count)).then_some((integer, count))
}

impl Parser<'_> {
    /// Reads a number: the next byte is a digit or a minus.
    #[inline]
    pub(super) fn number(&mut self) -> Result<Number> {
        let text = self.text.as_bytes().get(self.at..).unwrap_or_default();
        match short_integer(text) {
            Some((integer, length)) if !matches!(text.get(length), Some(b'.' | b'e' | b'E')) => {
                self.at += length;
                Ok(Number::Unsigned(integer))
            }
            _ => self.other_number(),
        }
    }

    /// Reads any number.
    #[inline(never)]
    fn other_number(&mut self) -> Result<Number> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let is_negative = bytes.get(start) == Some(&b'-');
        let first = start + usize::from(is_negative);
        let (integer, whole) = digits(bytes.get(first..).unwrap_or_default(), 0);
        if whole > 1 && bytes.get(first) == Some(&b'0') {
            self.at = first + 1;
            return Err(self.refuse(INVALID, 0));
        }
        self.digits_end_at(first + whole, whole)?;
        if let Some(b'.' | b'e' | b'E') = self.peek(0) {
            return self.fraction(start, integer, whole);
        }
        if whole > FITTING_DIGITS {
            return self.long_integer(start);
        }
        // There is no integer -0.
        let negative = 0_i64.checked_sub_unsigned(integer).filter(|&number| number < 0);
        Ok(negative.map_or(Number::Float(-(integer as f64)), Number::Negative))
    }

    /// Reads the rest of a number behind its digits before the point or the exponent.
    fn fraction(&mut self, start: usize, whole: u64, whole_digits: usize) -> Result<Number> {
        let bytes = self.text.as_bytes();
        let (mut integer, mut places) = (whole, 0);
        if bytes.get(self.at) == Some(&b'.') {
            let first = self.at + 1;
            (integer, places) = digits(bytes.get(first..).unwrap_or_default(), whole);
            self.digits_end_at(first + places, places)?;
        }
        let mut exponent = 0;
        if let Some(b'e' | b'E') = bytes.get(self.at) {
            let sign = bytes.get(self.at + 1).filter(|byte| matches!(byte, b'+' | b'-'));
            let first = self.at + 1 + usize::from(sign.is_some());
            let (size, count) = digits(bytes.get(first..).unwrap_or_default(), 0);
            self.digits_end_at(first + count, count)?;
            let size = if count > FITTING_DIGITS { None } else { i32::try_from(size).ok() };
            let size = size.unwrap_or(i32::MAX);
            exponent = if sign == Some(&b'-') { -size } else { size };
        }
        let exponent = exponent.saturating_sub(i32::try_from(places).unwrap_or(i32::MAX));
        let is_negative = bytes.get(start) == Some(&b'-');
        let decimal = Decimal::new(is_negative, integer, whole_digits + places, exponent);
        decimal.map_or_else(|| self.float(start), |number| Ok(Number::Decimal(number)))
    }

    /// Moves to the end of digits, of which there must be one.
    fn digits_end_at(&mut self, end: usize, count: usize) -> Result<()> {
        self.at = end;
        if count > 0 {
            return Ok(());
        }
        let is_end = end >= self.text.len();
        Err(self.refuse(if is_end { "EOF while parsing a value" } else { INVALID }, 0))
    }

    /// An integer that may be beyond 64 bits.
    #[cold]
    fn long_integer(&mut self, start: usize) -> Result<Number> {
        let text = self.text.get(start..self.at).unwrap_or_default();
        if let Ok(number) = text.parse() {
            return Ok(Number::Unsigned(number));
        }
        text.parse().map_or_else(|_| self.float(start), |number| Ok(Number::Negative(number)))
    }

    /// The number that ends here, as a double.
    fn float(&mut self, start: usize) -> Result<Number> {
        let number = self.text.get(start..self.at).unwrap_or_default().parse().unwrap_or(f64::INFINITY);
        if number.is_finite() {
            return Ok(Number::Float(number));
        }
        self.at -= 1;
        Err(self.refuse("number out of range", 0))
    }
}

const INVALID: &str = "invalid number";

/// The powers of ten that are doubles.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// The greatest integer up to which every one is a float of 64 bits.
pub(crate) const EXACT: u64 = 1 << 53;

/// The integer times ten to the power of `exponent`, if both are doubles: one operation rounds correctly.
fn exact(integer: u64, exponent: i32) -> Option<f64> {
    let power = POWERS.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    let number = integer as f64;
    (integer <= EXACT).then(|| if exponent < 0 { number / power } else { number * power })
}
