//! The report as a table.

use super::{FigureRange, FittedServers, Report, ReportRow, ShadowAgreement};
use crate::replay::OMNISCIENT;
use core::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, passed_over, shadow, servers, .. } = self;
        write!(f, "{requests} requests")?;
        if *passed_over > 0 {
            write!(f, ", {passed_over} lines passed over")?;
        }
        if let Some(ShadowAgreement { compared, agreed }) = *shadow {
            let share = agreed as f64 / compared as f64 * 100.0;
            write!(f, "; the shadow agreed on {share:.1} % of {compared}")?;
        }
        writeln!(f, "\n\n{servers}")?;
        if self.servers_replayed != servers.each.len() || (self.load - 1.0).abs() > f64::EPSILON {
            writeln!(f, "Replayed on {} servers at {} times the load\n", self.servers_replayed, self.load)?;
        }
        let mut header =
            vec!["", "p50 ms", "p90 ms", "p99 ms", "ms/token", "tokens/s", "% cached", "busiest"];
        header.extend(self.limit_ms.map(|_| "% in limit"));
        header.extend(self.has_refused().then_some("% refused"));
        let mut lines = vec![header.into_iter().map(str::to_owned).collect()];
        lines.extend(self.rows.iter().map(|row| self.cells(row)));
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column == 0 {
                    write!(f, "{cell:width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "\n{OMNISCIENT} knows all servers, and gives each request the one that is best for it.\n\
             Later requests may wait longer for that, so other ways can be better."
        )?;
        self.write_trust(f)
    }
}

impl Report {
    fn write_trust(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(is_trusted) = self.is_trusted else {
            return writeln!(
                f,
                "\nThe record has no times of its servers: the speeds are given or the defaults, and nothing shows whether they are true."
            );
        };
        if is_trusted {
            writeln!(f, "\nThe recorded picks, replayed, come within 10 % of the record.")
        } else {
            write!(
                f,
                "\nThis replay cannot be trusted: the recorded picks, replayed, differ from the record by"
            )?;
            for (number, difference) in self.differences.iter().enumerate() {
                let separator = if number == 0 { "" } else { "," };
                write!(f, "{separator} {:+.0} % ({})", difference.part * 100.0, difference.figure)?;
            }
            writeln!(f, ".")
        }
    }
}

impl fmt::Display for FittedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = |error: Option<f64>| match error {
            Some(error) => format!("error {:.0} % in the part held back", error * 100.0),
            None => "not in the record: given, or the default".to_owned(),
        };
        let Self { each, .. } = self;
        writeln!(f, "{} servers", each.len())?;
        let prefill = self.prefill_tokens_per_second;
        let apart = if self.reads_apart { ", apart from decoding" } else { "" };
        writeln!(f, "  prefill  {prefill:.0} tokens/s{apart}; {}", error(self.prefill_error))?;
        writeln!(
            f,
            "  decode   {:.2} ms for a step, {:.3} ms for each request and {:.3} µs for each token of context in it; {}",
            self.step_ms,
            self.step_ms_per_request,
            self.step_us_per_context_token,
            error(self.decode_error)
        )?;
        writeln!(
            f,
            "  cache    {} tokens{}; {}",
            self.cache_tokens,
            if self.keeps_responses { "" } else { ", without responses" },
            match self.cache_error {
                Some(error) => format!("differs by {:.1} % of all prompt tokens", error * 100.0),
                None => error(None),
            }
        )?;
        let shown = if self.shows_max_running { "in the record" } else { "not in the record" };
        writeln!(f, "  places   {}; {shown}", self.max_running)?;
        for server in each {
            let name = server.endpoint.as_deref().unwrap_or("a server");
            if !server.is_described {
                let error = server.error.unwrap_or_default() * 100.0;
                writeln!(f, "  {name} is not described by this: its error is {error:.0} %")?;
            } else if (server.speed - 1.0).abs() > 0.02 {
                writeln!(f, "  {name} has {:.2} times this speed", server.speed)?;
            }
        }
        Ok(())
    }
}

impl Report {
    /// Whether any rules refused requests.
    fn has_refused(&self) -> bool {
        self.rows.iter().any(|row| row.refused.most > 0.0)
    }

    fn cells(&self, row: &ReportRow) -> Vec<String> {
        let percent = |range: FigureRange| {
            let of = |number: f64| number * 100.0;
            range_text(FigureRange { median: of(range.median), least: of(range.least), most: of(range.most) })
        };
        let mut cells = vec![
            row.name.clone(),
            range_text(row.p50_ms),
            range_text(row.p90_ms),
            range_text(row.p99_ms),
            range_text(row.token_ms),
            range_text(row.tokens_per_second),
            row.cached.map_or_else(|| "–".to_owned(), percent),
            range_text(row.busiest),
        ];
        cells.extend(row.kept_limit.map(percent));
        cells.extend(self.has_refused().then(|| percent(row.refused)));
        cells
    }
}

/// The median, and in brackets the least and the most, if they differ.
fn range_text(range: FigureRange) -> String {
    let [median, least, most] = [range.median, range.least, range.most].map(digits);
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

/// Three significant digits.
pub(super) fn digits(number: f64) -> String {
    match number.abs() {
        _ if !number.is_finite() => "–".to_owned(),
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
