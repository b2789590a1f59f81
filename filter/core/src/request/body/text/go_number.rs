//! Numbers as the EPP's encoder, Go's, writes them: as floats of 64 bits with the fewest digits, and with an exponent below 1e-6
//! and from 1e21 on.

use crate::json::{LONGEST_NUMBER, Number, write_number};

/// The greatest integer up to which every one is a float of 64 bits.
const EXACT: u64 = 1 << 53;

/// Writes a number into `buffer`; returns the part that it takes.
pub(super) fn write_go_number(number: Number, buffer: &mut [u8; LONGEST_NUMBER]) -> &[u8] {
    let number = match number {
        Number::Unsigned(0..=EXACT) => number,
        Number::Negative(integer) if integer.unsigned_abs() <= EXACT => number,
        Number::Unsigned(_) | Number::Negative(_) | Number::Float(_) => Number::Float(number.as_f64()),
    };
    // `serde_json` writes the same digits and exponents as Go, but some exponents of numbers for which Go needs none, and `.0`.
    let mut length = write_number(number, buffer).len();
    let text = buffer.get(..length).unwrap_or_default();
    match text {
        [.., b'.', b'0'] => length -= 2,
        [digits @ .., b'e', b'+', b'1', power @ b'6'..=b'9'] => {
            length = in_full(buffer, digits.len(), usize::from(power - b'0') + 10);
        }
        [digits @ .., b'e', b'+', b'2', b'0'] => length = in_full(buffer, digits.len(), 20),
        [digits @ .., b'e', b'-', b'6'] => length = in_full_below_one(buffer, digits.len()),
        _ => {}
    }
    buffer.get(..length).unwrap_or_default()
}

/// Writes the number in the first `length` bytes, one digit of it before the point and 16 at most behind, times ten to the power of
/// `exponent`, which is at least 16; returns the new length.
fn in_full(buffer: &mut [u8; LONGEST_NUMBER], length: usize, exponent: usize) -> usize {
    let first = usize::from(buffer.first() == Some(&b'-'));
    let end = first + 1 + exponent;
    if let Some(fraction) = buffer.get_mut(first + 1..=end) {
        let digits = length.saturating_sub(first + 2);
        fraction.rotate_left(1);
        fraction.get_mut(digits..).unwrap_or_default().fill(b'0');
    }
    end
}

/// Writes the number in the first `length` bytes, one digit of it before the point, divided by a million; returns the new length.
fn in_full_below_one(buffer: &mut [u8; LONGEST_NUMBER], length: usize) -> usize {
    const ZEROS: &[u8] = b"0.00000";
    let mut number = *buffer;
    let digits = number.get_mut(..length).unwrap_or_default();
    let sign = digits.iter().take_while(|&&byte| byte == b'-').count();
    let mut end = sign;
    let digits = digits.iter().skip(sign).filter(|&&byte| byte != b'.');
    for (place, byte) in buffer.iter_mut().skip(sign).zip(ZEROS.iter().chain(digits)) {
        *place = *byte;
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    /// The rule in its simplest form: the fewest digits and Go's choice of an exponent.
    fn plain(number: f64) -> String {
        match number.abs() {
            0.0 | 1e-6..1e21 => number.to_string(),
            size if size < 1e-6 => format!("{number:e}"),
            _ => format!("{number:e}").replace('e', "e+"),
        }
    }

    #[test]
    fn a_float_of_any_size_is_written_as_go_writes_it() {
        let digits =
            ["0", "1", "2.5", "7.25", "9.99", "1.000000000000001", "1.2345678901234567", "9.999999999999999"];
        for exponent in -324..=308 {
            for digits in digits {
                for sign in ["", "-"] {
                    let number: f64 = format!("{sign}{digits}e{exponent}").parse().unwrap();
                    if number.is_finite() {
                        let mut buffer = [0; LONGEST_NUMBER];
                        let written = write_go_number(Number::Float(number), &mut buffer);
                        assert_eq!(core::str::from_utf8(written), Ok(&*plain(number)));
                    }
                }
            }
        }
    }

    #[test]
    fn an_integer_is_written_as_the_float_that_it_is_for_go() {
        for (number, expected) in [
            (Number::Unsigned(0), "0"),
            (Number::Unsigned(EXACT), "9007199254740992"),
            (Number::Unsigned(EXACT + 1), "9007199254740992"),
            (Number::Unsigned(u64::MAX), "18446744073709552000"),
            (Number::Negative(-12), "-12"),
            (Number::Negative(-9_007_199_254_740_993), "-9007199254740992"),
            (Number::Negative(i64::MIN), "-9223372036854776000"),
        ] {
            let mut buffer = [0; LONGEST_NUMBER];
            let written = write_go_number(number, &mut buffer);
            assert_eq!(core::str::from_utf8(written), Ok(expected), "{number:?}");
        }
    }
}
