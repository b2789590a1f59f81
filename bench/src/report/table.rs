//! The table of all figures.

use super::figures::rounded;

/// A figure and its comparison.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// Without the picker, where that makes sense.
    pub(crate) baseline: String,
    pub(crate) picker: String,
    /// The comparison of the two: the median over the rounds, and the range.
    pub(crate) compared: String,
    pub(crate) aim: String,
    /// `None` without an aim.
    pub(crate) is_met: Option<bool>,
}

impl Row {
    /// A figure of the picker alone.
    pub(crate) fn alone(what: &str, figure: f64, unit: &str, most: f64) -> Self {
        Self {
            what: what.to_owned(),
            baseline: String::new(),
            picker: format!("{} {unit}", rounded(figure)),
            compared: String::new(),
            aim: format!("<= {most} {unit}"),
            is_met: Some(figure <= most),
        }
    }

    /// The same figure without an aim.
    pub(crate) fn without_aim(self) -> Self {
        Self { aim: String::new(), is_met: None, ..self }
    }
}

/// Prints the rows as a Markdown table.
pub(crate) fn print(rows: &[Row]) {
    let head = ["what", "without the picker", "with the picker", "compared: median (range)", "aim", ""]
        .map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let result = row.is_met.map_or("", |is_met| if is_met { "met" } else { "MISSED" });
        [row.what.as_str(), &row.baseline, &row.picker, &row.compared, &row.aim, result].map(str::to_owned)
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
