//! The figures of [`held`](mod@super::held) as a table.

use super::held::HeldSample;
use super::proxy::HeldProxy;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::rounded;
use std::fmt;

/// Bytes that a stream may take of Envoy in addition to those without a picker.
const MAX_BYTES: f64 = 4.0 * KIB;
const KIB: f64 = 1_024.0;
const MIB: f64 = KIB * KIB;

/// All samples.
pub(crate) struct HeldTable<'a>(pub(crate) &'a [HeldSample]);

impl HeldTable<'_> {
    /// The proxy without a picker, with the same number of streams.
    fn bare(&self, sample: &HeldSample) -> Option<&HeldSample> {
        let is_bare = |other: &&HeldSample| other.proxy == HeldProxy::Bare && other.streams == sample.streams;
        self.0.iter().find(is_bare).filter(|bare| sample.proxy != HeldProxy::Bare && sample.open == bare.open)
    }

    fn row(&self, sample: &HeldSample) -> [String; 10] {
        let HeldSample { proxy, streams, protocol, outcomes, open, before, held, cpu } = sample;
        let failures = outcomes.failures.iter().map(|(reason, count)| format!("{count} × {reason}"));
        let more = self.bare(sample).map(|bare| sample.envoy_bytes_more_than(bare));
        let aim = match (proxy, more) {
            (HeldProxy::Filter(_), Some(bytes)) => met(outcomes.whole == *streams && bytes <= MAX_BYTES),
            _ => "",
        };
        [
            format!("{streams}, {protocol}"),
            proxy.to_string(),
            outcomes.whole.to_string(),
            failures.collect::<Vec<_>>().join(", "),
            open.to_string(),
            format!("{}; {}", rounded(before.envoy as f64 / MIB), rounded(held.envoy as f64 / MIB)),
            more.map_or_else(String::new, |bytes| rounded(bytes / KIB)),
            rounded(sample.picker_bytes() / KIB),
            rounded(cpu.total().as_secs_f64() * 1e3 / *streams as f64),
            aim.to_owned(),
        ]
    }
}

impl fmt::Display for HeldTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Streams, and the protocol to the servers:\n")?;
        let head = [
            "",
            "",
            "answered whole",
            "others",
            "open at once",
            "MiB of Envoy before; while they were open",
            "KiB of Envoy each, more than bare",
            "KiB of the picker's process each",
            "processor ms each",
            "all whole, ≤ 4 KiB more",
        ];
        table(f, &head, self.0.iter().map(|sample| self.row(sample)))
    }
}
