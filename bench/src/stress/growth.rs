//! Whether memory grows.

use crate::report::median;

/// Growth of `y` for each unit of `x`: the median over all pairs of points that lie `apart`; 0 if there is none.
///
/// A new peak of memory in use adds a step, which stays; a leak shows between any two points.
pub(crate) fn median_growth(points: &[(f64, f64)], apart: usize) -> f64 {
    let later = points.iter().skip(apart);
    median(points.iter().zip(later).map(|(from, to)| (to.1 - from.1) / (to.0 - from.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_counts_as_growth_and_a_step_does_not() {
        let points = |y: fn(f64) -> f64| (0..100).map(f64::from).map(|x| (x, y(x))).collect::<Vec<_>>();
        assert!((median_growth(&points(|x| 3.0 + 2.0 * x), 20) - 2.0).abs() < 1e-9);
        assert!(median_growth(&points(|x| if x < 50.0 { 3.0 } else { 15.0 }), 20).abs() < 1e-9);
        assert!(median_growth(&[(0.0, 1.0)], 20).abs() < 1e-9);
    }
}
