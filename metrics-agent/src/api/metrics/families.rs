//! Families of metrics with labels, computed for each request.

use core::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

pub(super) type Labels = Vec<(&'static str, String)>;
pub(super) type Numbers = Family<Labels, Gauge<f64, AtomicU64>>;
pub(super) type Counts = Family<Labels, Counter>;

/// Makes families of one registry.
pub(super) struct Families<'a>(pub(super) &'a mut Registry);

impl Families<'_> {
    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Numbers {
        self.gauge_of(name, help, None)
    }

    pub(super) fn gauge_of(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Numbers {
        let family = Numbers::default();
        self.add(name, help, unit, family.clone());
        family
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> Counts {
        let family = Counts::default();
        self.add(name, help, None, family.clone());
        family
    }

    pub(super) fn add(&mut self, name: &str, help: &str, unit: Option<Unit>, family: impl Metric) {
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}

/// Sets a gauge to a value, unless it has a greater one.
pub(super) fn raise(family: &Numbers, labels: &Labels, value: f64) {
    let gauge = family.get_or_create(labels);
    gauge.set(gauge.get().max(value));
}
