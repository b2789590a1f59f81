//! Envoy's statistics in Prometheus' format.

use endpoint_picker_harness::program::Envoy;
use std::str::FromStr;

/// The filter's series in Envoy's text for Prometheus.
pub(crate) struct PrometheusText(pub(crate) String);

impl PrometheusText {
    pub(crate) async fn by(envoy: &Envoy) -> Self {
        let text = envoy.admin_text("/stats/prometheus").await.unwrap();
        let lines = text.lines().filter(|line| line.starts_with("endpoint_picker_"));
        Self(lines.collect::<Vec<_>>().join("\n"))
    }

    /// The value of a series.
    pub(crate) fn value(&self, series: &str) -> Result<u64, String> {
        self.parsed(series)
    }

    /// The value of a series, or of a sum, which is not a whole number.
    pub(crate) fn parsed<T: FromStr>(&self, series: &str) -> Result<T, String> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = line.ok_or_else(|| format!("no {series} in:\n{}", self.0))?;
        value.parse().map_err(|_| format!("{series} is {value}"))
    }

    /// The sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}
