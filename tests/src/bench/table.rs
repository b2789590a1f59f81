//! The table of all figures.

/// A figure, with what it is compared with.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) what: String,
    /// Without the picker, where that makes sense.
    pub(super) bare: String,
    pub(super) ours: String,
    /// How the two compare: the median over the rounds, and the range.
    pub(super) compared: String,
    pub(super) aim: String,
    /// `None` where no aim is set.
    pub(super) is_met: Option<bool>,
}

impl Row {
    /// A figure of the picker alone.
    pub(super) fn alone(what: &str, figure: f64, unit: &str, most: f64) -> Self {
        Self {
            what: what.to_owned(),
            bare: String::new(),
            ours: format!("{} {unit}", rounded(figure)),
            compared: String::new(),
            aim: format!("<= {most} {unit}"),
            is_met: Some(figure <= most),
        }
    }

    /// The same as a figure for which no aim is set.
    pub(super) fn without_aim(self) -> Self {
        Self { aim: String::new(), is_met: None, ..self }
    }
}

/// Three digits that matter.
pub(crate) fn rounded(figure: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().position(|&least| figure.abs() >= least).unwrap_or(3);
    format!("{figure:.decimals$}")
}

/// The median; 0 of nothing.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let (low, high) = (figures.len().saturating_sub(1) / 2, figures.len() / 2);
    figures.get(low).zip(figures.get(high)).map_or(0.0, |(low, high)| f64::midpoint(*low, *high))
}

/// Prints the rows as a Markdown table.
pub fn print(rows: &[Row]) {
    let head = ["what", "bare", "with the picker", "compared: median (range)", "aim", ""].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let verdict = row.is_met.map_or("", |is_met| if is_met { "met" } else { "MISSED" });
        [row.what.as_str(), &row.bare, &row.ours, &row.compared, &row.aim, verdict].map(str::to_owned)
    });
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4, 5].map(width);
    for (number, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!(" {cell:width$} |"));
        println!("|{}", cells.collect::<String>());
        if number == 0 {
            println!("|{}", widths.map(|width| "-".repeat(width + 2) + "|").concat());
        }
    }
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
