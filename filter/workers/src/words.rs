//! Bytes in shared data as words of 64 bits.

use core::time::Duration;

/// The little-endian words in bytes; a remainder of less than 8 bytes is left out.
pub fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The first word in bytes.
pub(crate) fn first_word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// The words as bytes.
pub(crate) fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// A time since the epoch in nanoseconds, which fit until the year 2554.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_make_no_word_are_left_out() {
        assert_eq!(words(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 9]).collect::<Vec<_>>(), [1]);
        assert_eq!(first_word(&[1, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        let numbers = [0, 7, u64::MAX];
        assert_eq!(words(&bytes(numbers)).collect::<Vec<_>>(), numbers);
        assert_eq!(nanoseconds(Duration::MAX), u64::MAX);
    }
}
