//! Tables as the documents have them.

use std::fmt::{Result, Write};

/// Writes a table; every row has as many cells as the head.
pub(crate) fn table<const N: usize>(
    out: &mut impl Write,
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result {
    writeln!(out, "| {} |", head.join(" | "))?;
    writeln!(out, "|{}", "---|".repeat(N))?;
    for row in rows {
        writeln!(out, "| {} |", row.join(" | "))?;
    }
    writeln!(out)
}

/// Whether an aim was met.
pub(crate) fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}
