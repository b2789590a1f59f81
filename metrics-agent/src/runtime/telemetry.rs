//! Counters that several stages use.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// A metric's labels, of fixed names and fixed values, so that the number of series is bounded.
pub(crate) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counts an operation by its result: `ok` or `refused`. Clones count together.
#[derive(Clone, Debug)]
pub struct ResultCounter(Family<Labels<1>, Counter>);

impl ResultCounter {
    /// Registers the counter. Both results start at zero, because Prometheus sees no increase in the first value of a new series.
    pub fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let counts = Family::<Labels<1>, Counter>::default();
        for result in ["ok", "refused"] {
            drop(counts.get_or_create(&[("result", result)]));
        }
        registry.register(name, help, counts.clone());
        Self(counts)
    }

    /// Counts one operation.
    pub fn count(&self, is_ok: bool) {
        let result = if is_ok { "ok" } else { "refused" };
        self.0.get_or_create(&[("result", result)]).inc();
    }
}
