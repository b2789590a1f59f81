//! Linear least squares with coefficients that are not negative.

/// One equation: the features times the coefficients are the value, about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Equation<const N: usize> {
    pub(super) features: [f64; N],
    pub(super) value: f64,
    /// Errors count as parts of this number, which is above 0.
    pub(super) scale: f64,
}

impl<const N: usize> Equation<N> {
    /// The value that these coefficients give.
    pub(super) fn predicted(&self, coefficients: &[f64; N]) -> f64 {
        self.features.iter().zip(coefficients).map(|(feature, coefficient)| feature * coefficient).sum()
    }

    /// The difference of the prediction to the value, as a part of the scale.
    pub(super) fn error(&self, coefficients: &[f64; N]) -> f64 {
        (self.predicted(coefficients) - self.value).abs() / self.scale
    }
}

/// Part of the equations, those with the greatest errors, that a second solution leaves out: requests that
/// waited for something that no feature shows.
const LEFT_OUT: f64 = 0.1;

/// The coefficients with the least squares of errors. A coefficient that would be
/// negative is zero. `None`: there are fewer than four equations for each coefficient.
pub(super) fn solve<const N: usize>(equations: &[Equation<N>]) -> Option<[f64; N]> {
    if equations.len() < 4 * N {
        return None;
    }
    let first = solve_positive(equations);
    let mut errors: Vec<f64> = equations.iter().map(|equation| equation.error(&first)).collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a length")]
    let kept = (errors.len() as f64 * (1.0 - LEFT_OUT)) as usize;
    let (_, limit, _) = errors.select_nth_unstable_by(kept.min(equations.len() - 1), f64::total_cmp);
    let limit = *limit;
    let rest: Vec<_> = equations.iter().filter(|equation| equation.error(&first) <= limit).copied().collect();
    Some(solve_positive(&rest))
}

fn solve_positive<const N: usize>(equations: &[Equation<N>]) -> [f64; N] {
    let mut is_used = [true; N];
    loop {
        let solution = solve_used(equations, is_used);
        let least = solution.iter().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((place, _)) = least.filter(|(_, value)| **value < 0.0) else { return solution };
        if let Some(used) = is_used.get_mut(place) {
            *used = false;
        }
    }
}

/// The normal equations of the used features, by elimination with pivots.
#[expect(clippy::indexing_slicing, reason = "all indices are below N")]
fn solve_used<const N: usize>(equations: &[Equation<N>], is_used: [bool; N]) -> [f64; N] {
    let mut matrix = [[0.0; N]; N];
    let mut values = [0.0; N];
    for Equation { features, value, scale } in equations {
        let weight = scale.powi(-2);
        for row in 0..N {
            for column in 0..N {
                matrix[row][column] += weight * features[row] * features[column];
            }
            values[row] += weight * features[row] * value;
        }
    }
    let scale: [f64; N] = core::array::from_fn(|place| matrix[place][place].sqrt().max(1e-300));
    for row in 0..N {
        for column in 0..N {
            matrix[row][column] /= scale[row] * scale[column];
            if !is_used[row] || !is_used[column] {
                matrix[row][column] = f64::from(u8::from(row == column));
            }
        }
        values[row] = if is_used[row] { values[row] / scale[row] } else { 0.0 };
        // Keeps features apart that always move together.
        matrix[row][row] += 1e-9;
    }
    for column in 0..N {
        let pivot = (column..N).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()));
        let pivot = pivot.unwrap_or(column);
        matrix.swap(column, pivot);
        values.swap(column, pivot);
        for row in 0..N {
            if row != column && matrix[column][column] != 0.0 {
                let factor = matrix[row][column] / matrix[column][column];
                let pivot = matrix[column];
                for (own, pivot) in matrix[row].iter_mut().zip(pivot) {
                    *own -= factor * pivot;
                }
                values[row] -= factor * values[column];
            }
        }
    }
    core::array::from_fn(|place| match matrix[place][place] {
        0.0 => 0.0,
        diagonal => values[place] / diagonal / scale[place],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_found_in_spite_of_outliers_and_none_is_negative() {
        let equation = |number: usize| {
            let (a, b) = ((number % 7) as f64 + 1.0, (number % 11) as f64 * 100.0);
            let outlier = if number.is_multiple_of(25) { 10.0 } else { 0.0 };
            let value = 2.0 * a + 0.03 * b + outlier;
            Equation { features: [a, b, 1.0], value, scale: value }
        };
        let equations: Vec<_> = (0..200).map(equation).collect();
        let found = solve(&equations).unwrap();
        assert!((found[0] - 2.0).abs() < 0.05 && (found[1] - 0.03).abs() < 0.001, "{found:?}");
        assert!(found.iter().all(|coefficient| *coefficient >= 0.0), "{found:?}");
        assert_eq!(solve(&equations[..11]), None);
    }
}
