//! Figures that are shown and compared.

/// Three digits that matter.
pub fn rounded(figure: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().position(|&least| figure.abs() >= least).unwrap_or(3);
    format!("{figure:.decimals$}")
}

/// The median; 0 of nothing.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let (low, high) = (figures.len().saturating_sub(1) / 2, figures.len() / 2);
    figures.get(low).zip(figures.get(high)).map_or(0.0, |(low, high)| f64::midpoint(*low, *high))
}

/// The median, and the range of several.
pub fn with_range(figures: Vec<f64>) -> String {
    let of = |pick: fn(f64, f64) -> f64| figures.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    let (min, max) = (of(f64::min), of(f64::max));
    let range =
        if figures.len() > 1 { format!(" ({}–{})", rounded(min), rounded(max)) } else { String::new() };
    format!("{}{range}", rounded(median(figures)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown() {
        let shown = [1234.5, 123.45, 12.345, 1.2345, 0.012_345, -0.5].map(rounded);
        assert_eq!(shown, ["1234", "123", "12.3", "1.23", "0.012", "-0.500"]);
    }

    #[test]
    fn the_median_lies_between_the_two_in_the_middle() {
        let found = [vec![], vec![3.0], vec![3.0, 1.0], vec![9.0, 1.0, 2.0]].map(median);
        assert_eq!(found.map(|median| median.to_string()), ["0", "3", "2", "2"]);
    }
}
