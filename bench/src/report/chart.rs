//! Bar charts in Mermaid, which GitHub renders in Markdown.

use super::rounded;

/// A chart with a horizontal bar for each name.
pub(crate) fn bars(title: &str, unit: &str, bars: &[(String, f64)]) -> String {
    let names: Vec<String> =
        bars.iter().map(|(name, value)| format!("\"{name}: {}\"", rounded(*value))).collect();
    let values: Vec<String> = bars.iter().map(|(_, value)| format!("{value:.1}")).collect();
    let most = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    format!(
        "```mermaid\nxychart-beta horizontal\n    title \"{title}\"\n    x-axis [{}]\n    y-axis \"{unit}\" 0 --> {:.0}\n    bar [{}]\n```\n",
        names.join(", "),
        most.ceil(),
        values.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_has_its_name_and_figure() {
        let chart = bars("Cost", "µs", &[("a".to_owned(), 1.25), ("b".to_owned(), 416.2)]);
        let lines: Vec<&str> = chart.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "```mermaid",
                "xychart-beta horizontal",
                "title \"Cost\"",
                "x-axis [\"a: 1.25\", \"b: 416\"]",
                "y-axis \"µs\" 0 --> 417",
                "bar [1.2, 416.2]",
                "```"
            ]
        );
    }
}
