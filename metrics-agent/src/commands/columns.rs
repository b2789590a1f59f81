//! Tables of text, for terminals.

use core::fmt;
use core::ops::Range;

use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};

/// In place of what nobody said.
pub(crate) const NOTHING: &str = "-";

/// Writes rows under their header, columns two spaces apart; those in `numbers` are aligned to the right.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
    numbers: Range<usize>,
) -> fmt::Result {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        // So that columns begin where the line does.
        column.set_padding((0, 2));
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
}

/// Names come from outside; a terminal must not take them for commands.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A number of things, `1 file` or `2 files`.
pub(crate) fn counted(count: impl TryInto<u64> + fmt::Display + Copy, thing: &str) -> String {
    let plural = if count.try_into().is_ok_and(|count| count == 1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
