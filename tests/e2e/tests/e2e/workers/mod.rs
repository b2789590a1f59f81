//! Envoy's workers decide as one.

mod replicas;
mod resync;
