//! Rounds in which a server had more requests than it could serve.
//!
//! Prompts that begin alike stay at the server that had the first of them. Where several frequent ones meet, which the first moments of a
//! round decide, that server has more requests than it can serve until the round ends: with one proxy as with several, and with the EPP.

/// A round is hot if its p90 is more than this many times the median of one proxy.
pub(crate) const HOT: f64 = 2.0;

/// Whether each round with one of these p90 is hot, by the median p90 of one proxy.
pub(crate) fn are_hot(p90: &[f64], median_of_one: f64) -> impl Iterator<Item = bool> {
    p90.iter().map(move |p90| *p90 > HOT * median_of_one)
}

/// How many are hot, of how many.
pub(crate) fn hot_rounds(p90: &[f64], median_of_one: f64) -> String {
    format!("{} of {}", are_hot(p90, median_of_one).filter(|is_hot| *is_hot).count(), p90.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_hot_above_twice_the_median_of_one_proxy() {
        assert_eq!(hot_rounds(&[33.0, 66.0, 67.0, 250.0], 33.0), "2 of 4");
        assert_eq!(hot_rounds(&[], 33.0), "0 of 0");
    }
}
