//! Figures of the picker alone, which are compared with nothing.

use super::markdown::{met, table};
use super::rounded;
use std::fmt;

/// A figure and its bound.
#[derive(Clone, Debug)]
pub(crate) struct OwnFigure {
    pub(crate) what: String,
    pub(crate) figure: f64,
    pub(crate) unit: &'static str,
    /// The most that it may be.
    pub(crate) most: Option<f64>,
}

/// The figures as a table.
pub(crate) struct OwnFigureTable<'a>(pub(crate) &'a [OwnFigure]);

impl fmt::Display for OwnFigureTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.0.iter().map(|OwnFigure { what, figure, unit, most }| {
            let [aim, is_met] = most.map_or_else(Default::default, |most| {
                [format!("≤ {most} {unit}"), met(*figure <= most).to_owned()]
            });
            [what.clone(), format!("{} {unit}", rounded(*figure)), aim, is_met]
        });
        table(f, &["", "", "aim", ""], rows)
    }
}
