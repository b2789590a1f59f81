//! The scan of a string for its end: no byte of a body is looked at alone but those of its last few.

use memchr::memchr2;

/// Whether a byte of a string stands for itself: the others end the string, begin an escape, or are not
/// allowed.
fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Whether there are vectors of 16 bytes. Without, words are faster.
const HAS_VECTORS: bool =
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128"));

/// Words that are read before blocks: most names and many values end there.
const FIRST_WORDS: usize = 4;

/// The number of plain bytes that `text` begins with.
#[inline]
pub(super) fn plain_length(text: &[u8]) -> usize {
    find_in_first_words(text, not_plain)
        .unwrap_or_else(|begun| begun + long_plain_length(text.get(begun..).unwrap_or_default()))
}

/// The place of the first quote or backslash.
#[inline]
pub(super) fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    match find_in_first_words(text, quotes_and_backslashes) {
        Ok(at) => Some(at),
        Err(begun) => memchr2(b'"', b'\\', text.get(begun..)?).map(|at| begun + at),
    }
}

/// The first byte that `search` finds in the first words of `text`, or else their length.
#[inline]
fn find_in_first_words(text: &[u8], search: fn(u64) -> u64) -> Result<usize, usize> {
    let (words, _) = text.as_chunks();
    for (at, word) in words.iter().take(FIRST_WORDS).enumerate() {
        let found = search(u64::from_le_bytes(*word));
        if found != 0 {
            return Ok(at * WORD + first(found));
        }
    }
    Err(words.len().min(FIRST_WORDS) * WORD)
}

/// The same for the rest of a long string. It looks for a quote beyond a control character, at which a caller
/// therefore has to end: one that continues would look again for each of them.
#[inline(never)]
fn long_plain_length(text: &[u8]) -> usize {
    if HAS_VECTORS {
        let plain = text.get(..memchr2(b'"', b'\\', text).unwrap_or(text.len())).unwrap_or_default();
        if has_no_controls(plain) {
            return plain.len();
        }
    }
    let (words, rest) = text.as_chunks();
    let mut plain = 0;
    for word in words {
        let found = not_plain(u64::from_le_bytes(*word));
        if found != 0 {
            return plain + first(found);
        }
        plain += WORD;
    }
    plain + rest.iter().take_while(|&&byte| is_plain(byte)).count()
}

/// Whether no byte is a control character. The compiler makes vectors of the bytes.
fn has_no_controls(text: &[u8]) -> bool {
    text.iter().fold(u8::MAX, |lowest, &byte| lowest.min(byte)) >= 0x20
}

const WORD: usize = size_of::<u64>();

/// Sets the highest bit of the first byte that is not plain, and of no byte before it. 0 if all are plain.
fn not_plain(bytes: u64) -> u64 {
    // A subtraction sets the highest bit of a byte that is too small for it, and may change bytes behind it.
    quotes_and_backslashes(bytes) | bytes.wrapping_sub(ONES * 0x20) & !bytes & HIGHEST
}

/// The same for the first quote or backslash.
fn quotes_and_backslashes(bytes: u64) -> u64 {
    // A byte becomes 0 where it is the one that is looked for, and 1 is subtracted as above.
    let quotes = (bytes ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
    let backslashes = (bytes ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    // Bytes with the highest bit are parts of characters beyond ASCII.
    (quotes | backslashes) & !bytes & HIGHEST
}

/// A 1 in each byte.
const ONES: u64 = u64::MAX / 255;

/// The highest bit of each byte.
const HIGHEST: u64 = ONES << 7;

/// The index of the first byte with its highest bit.
fn first(bits: u64) -> usize {
    bits.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;
    use crate::test;

    const BLOCK: usize = 64;

    fn by_bytes(text: &[u8]) -> usize {
        text.iter().position(|&byte| !is_plain(byte)).unwrap_or(text.len())
    }

    #[test]
    fn each_byte_ends_the_scan_or_not_at_each_place_of_a_text_of_each_length() {
        for length in 0..=3 * BLOCK {
            let mut text = vec![b'a'; length];
            assert_eq!(plain_length(&text), length);
            for at in 0..length {
                for byte in [0, 0x1f, 0x20, 0x21, b'"', 0x23, b'[', b'\\', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff]
                {
                    text[at] = byte;
                    assert_eq!(plain_length(&text), by_bytes(&text), "{byte:#x} at {at} of {length}");
                }
                text[at] = b'a';
            }
        }
        for byte in 0..=u8::MAX {
            let text = [byte; BLOCK];
            assert_eq!(plain_length(&text), by_bytes(&text), "{byte:#x}");
            assert_eq!(plain_length(&text[..WORD]), by_bytes(&text[..WORD]), "{byte:#x}");
        }
    }

    #[test]
    fn any_text_is_plain_up_to_the_same_byte_from_wherever_it_is_read() {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0x5c; 32]);
        let mut runner = TestRunner::new_with_rng(Config::with_cases(400), rng);
        let near = select(vec![0x1f, 0x20, 0x21, b'"', 0x23, b'[', b'\\', b']', 0x9f, 0xa2, 0xdc]);
        let byte = prop_oneof![30 => 0x20_u8..0x7f, 2 => any::<u8>(), 1 => near];
        let run = runner.run(&vec(byte, 0..400), |text| {
            for from in 0..text.len() {
                prop_assert_eq!(plain_length(&text[from..]), by_bytes(&text[from..]), "from {}", from);
            }
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
    }
}
