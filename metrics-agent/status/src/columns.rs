//! Tables of text, for terminals.

use core::fmt;
use core::ops::Range;

use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};

/// The cell of a missing value.
pub const NOTHING: &str = "-";

/// Writes a header and rows, columns two spaces apart; the columns in `numbers` are aligned to the right.
pub fn write(
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
        // The first column starts at the start of the line.
        column.set_padding((0, 2));
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
}

/// A name without control characters: names come from outside, and a terminal would execute escape sequences.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The beginning of a text that is longer than this number of characters.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most).and(text.char_indices().nth(most.saturating_sub(1))) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A count with its noun, `1 file` or `2 files`.
pub fn counted(count: impl TryInto<u64> + fmt::Display + Copy, thing: &str) -> String {
    let plural = if count.try_into().is_ok_and(|count| count == 1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
