//! The order of measurements: one at a time, and another one first in each round.

/// The items of one round. What is measured first may find the machine in another state than what follows.
pub fn in_turns<T: Copy>(items: &[T], round: u32) -> impl Iterator<Item = T> + use<'_, T> {
    items.iter().copied().cycle().skip(round as usize % items.len().max(1)).take(items.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_items_and_begins_with_another() {
        let rounds = [0, 1, 2, 3].map(|round| in_turns(&['a', 'b', 'c'], round).collect::<String>());
        assert_eq!(rounds, ["abc", "bca", "cab", "abc"]);
    }
}
