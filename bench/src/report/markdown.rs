//! Tables as the documents have them.

use std::fmt::{Result, Write};

/// Writes a table; every row has the head's number of cells.
pub fn table<R: AsRef<[String]>>(
    out: &mut impl Write,
    head: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = R>,
) -> Result {
    let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
    writeln!(out, "| {} |", head.join(" | "))?;
    writeln!(out, "|{}", "---|".repeat(head.len()))?;
    for row in rows {
        writeln!(out, "| {} |", row.as_ref().join(" | "))?;
    }
    writeln!(out)
}

/// Whether an aim was met.
pub fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}
