//! Which messages of a sender have arrived.

/// The newest sequence numbers of a sender's messages, and which of them have arrived: the last 128, at least
/// two and a half seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Zero: none has arrived.
    newest: u64,
    /// Bit n: the number `newest - n` has arrived.
    arrived: u128,
    /// The lowest number that arrived; lower numbers do not count as missed.
    first: u64,
    has_missed: bool,
}

impl Seen {
    /// The newest number that has arrived; zero: none.
    pub(super) fn newest(self) -> u64 {
        self.newest
    }

    /// Notes that a message arrived. Returns whether it is the first time. A number that is too old counts as
    /// a repetition.
    pub(super) fn insert(&mut self, sequence: u64) -> bool {
        if self.newest == 0 {
            *self = Self { newest: sequence, arrived: 1, first: sequence, has_missed: false };
            return true;
        }
        if sequence > self.newest {
            self.advance(sequence - self.newest);
            self.newest = sequence;
            self.arrived |= 1;
            return true;
        }
        // A number 128 or more behind the newest has left the window, and counts as arrived.
        let place = u32::try_from(self.newest - sequence).ok();
        let Some(bit) = place.and_then(|place| 1_u128.checked_shl(place)) else { return false };
        let is_first = self.arrived & bit == 0;
        self.arrived |= bit;
        // Messages may arrive out of order, so the first that arrives need not be the first that was sent.
        self.first = self.first.min(sequence);
        is_first
    }

    fn advance(&mut self, by: u64) {
        let shift = u32::try_from(by).unwrap_or(u32::MAX);
        // The numbers that leave the window. With a shift of more than 128, numbers in between were never in
        // it.
        let leaving = if shift >= u128::BITS { u128::MAX } else { !(u128::MAX >> shift) };
        // Numbers before the first message do not count as missed.
        let counted = u32::try_from(self.newest.saturating_sub(self.first)).unwrap_or(u32::MAX);
        let counted = 1_u128.checked_shl(counted.saturating_add(1)).map_or(u128::MAX, |end| end - 1);
        self.has_missed |= leaving & counted & !self.arrived != 0 || shift > u128::BITS;
        self.arrived = self.arrived.checked_shl(shift).unwrap_or(0);
    }

    /// Whether messages were missed that will not arrive any more; false from then on.
    pub(super) fn take_missed(&mut self) -> bool {
        core::mem::take(&mut self.has_missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_times(seen: &mut Seen, sequences: impl IntoIterator<Item = u64>) -> Vec<u64> {
        sequences.into_iter().filter(|&sequence| seen.insert(sequence)).collect()
    }

    #[test]
    fn each_message_is_new_once_in_any_order() {
        let mut seen = Seen::default();
        assert_eq!(first_times(&mut seen, [5, 3, 5, 4, 3, 7, 1, 7]), [5, 3, 4, 7, 1]);
        assert_eq!(first_times(&mut seen, 1..=9), [2, 6, 8, 9]);
        assert!(!seen.take_missed());
    }

    #[test]
    fn a_message_that_is_too_old_is_a_repetition() {
        let mut seen = Seen::default();
        assert_eq!(first_times(&mut seen, [1, 200, 73, 72]), [1, 200, 73]);
    }

    #[test]
    fn a_gap_is_missed_when_it_cannot_be_filled_any_more() {
        let mut seen = Seen::default();
        first_times(&mut seen, (1000..1200).filter(|&sequence| sequence != 1100));
        assert!(!seen.take_missed(), "it may still arrive");
        first_times(&mut seen, 1200..1228);
        assert!(!seen.take_missed());
        first_times(&mut seen, [1228]);
        assert!(seen.take_missed());
        assert!(!seen.take_missed());
        first_times(&mut seen, 1229..2000);
        assert!(!seen.take_missed());
        first_times(&mut seen, [2500]);
        assert!(seen.take_missed(), "a long gap");
    }

    #[test]
    fn nothing_before_the_first_message_is_missed() {
        let mut seen = Seen::default();
        first_times(&mut seen, 1000..2000);
        assert!(!seen.take_missed());
        let mut seen = Seen::default();
        first_times(&mut seen, [1000, 998]);
        first_times(&mut seen, 1001..2000);
        assert!(seen.take_missed(), "999");
    }
}
