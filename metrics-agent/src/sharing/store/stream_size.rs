//! How many entries a stream may have.

/// Bytes of a stream, about: the number of entries is bounded so that they take no more.
const MAX_BYTES: usize = 64 << 20;

/// Bounds of the number of entries.
const MIN_ENTRIES: usize = 1 << 10;
const MAX_ENTRIES: usize = 1 << 16;

/// The size of entries, averaged over the last hundred or so.
#[derive(Default)]
pub(super) struct AverageSize(f64);

impl AverageSize {
    /// Takes the size of an entry. Returns how many of them the stream may have.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        const SHARE: f64 = 0.01;
        let bytes = bytes as f64;
        self.0 = if self.0 == 0.0 { bytes } else { self.0 + SHARE * (bytes - self.0) };
        // Not negative, and far below 2^53.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped below")]
        let entries = (MAX_BYTES as f64 / self.0.max(1.0)) as usize;
        entries.clamp(MIN_ENTRIES, MAX_ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_fewer_entries_the_larger_they_are() {
        let mut average = AverageSize::default();
        assert_eq!(average.take(100), MAX_ENTRIES);
        let mut average = AverageSize::default();
        assert_eq!(average.take(8 << 10), 8 << 10);
        assert_eq!(average.take(1 << 30), MIN_ENTRIES);
        for _ in 0..2_000 {
            average.take(8 << 10);
        }
        assert!((8_000..=8_192).contains(&average.take(8 << 10)));
    }
}
