//! The notebook in docs/benchmarks, into which benchmarks write their figures.

use super::machine::today;
use anyhow::{Context, Result};
use endpoint_picker_harness::tools;
use std::fs;

/// Writes the page of a benchmark of today, in place of an earlier page of the same day.
pub fn write(benchmark: &str, text: &str) -> Result<()> {
    let (name, page) = page(&today(), benchmark, text);
    let path = tools::root().join("docs/benchmarks").join(name);
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))
}

/// Name and content of a page.
fn page(date: &str, benchmark: &str, text: &str) -> (String, String) {
    let name = format!("{date}-{}.md", benchmark.to_lowercase().replace(' ', "-"));
    (name, format!("# {benchmark}, {date}\n\n{}\n", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_by_its_day_and_its_benchmark() {
        let (name, page) = page("2026-11-24", "EPP cost", "| a |\n");
        assert_eq!(name, "2026-11-24-epp-cost.md");
        assert_eq!(page, "# EPP cost, 2026-11-24\n\n| a |\n");
    }
}
