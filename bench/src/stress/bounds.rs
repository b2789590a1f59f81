//! Figures with bounds, printed one after another.

/// A table on standard output.
#[derive(Debug)]
pub(super) struct BoundTable {
    are_met: bool,
}

impl BoundTable {
    /// Prints the head.
    pub(super) fn begin() -> Self {
        println!("| What | Measured | Bound | |\n|---|---|---|---|");
        Self { are_met: true }
    }

    /// Prints a figure, and whether it keeps its bound.
    pub(super) fn print(&mut self, what: &str, figure: f64, unit: &str, max: Option<f64>) {
        let bound = max.map_or_else(
            || "| ".to_owned(),
            |max| format!("<= {max} {unit} | {}", if figure <= max { "met" } else { "MISSED" }),
        );
        self.are_met &= max.is_none_or(|max| figure <= max);
        println!("| {what} | {figure:.3} {unit} | {bound} |");
    }

    /// Whether all figures keep their bounds.
    pub(super) fn are_met(&self) -> bool {
        self.are_met
    }
}
