//! Whether something grows.

use crate::bench::median;

/// How much `y` usually grows for each unit of `x`: the median between points that lie `apart`; 0 if none do.
///
/// Memory that was never needed at once before comes in steps and stays; a leak is there between any two looks.
pub(super) fn usual_growth(points: &[(f64, f64)], apart: usize) -> f64 {
    let later = points.iter().skip(apart);
    median(points.iter().zip(later).map(|(from, to)| (to.1 - from.1) / (to.0 - from.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_seen_and_a_step_is_not() {
        let points = |y: fn(f64) -> f64| (0..100).map(f64::from).map(|x| (x, y(x))).collect::<Vec<_>>();
        assert!((usual_growth(&points(|x| 3.0 + 2.0 * x), 20) - 2.0).abs() < 1e-9);
        assert!(usual_growth(&points(|x| if x < 50.0 { 3.0 } else { 15.0 }), 20).abs() < 1e-9);
        assert!(usual_growth(&[(0.0, 1.0)], 20).abs() < 1e-9);
    }
}
