//! `precise-prefix-cache-scorer`: a `prefix-cache-scorer` with its `precise-prefix-cache-producer`.

use std::sync::Arc;

use serde::Deserialize;

use super::PrefixCacheScorer;
use crate::plugin::{Plugin, PrecisePrefixCacheProducer, Roles};

/// Deprecated. It reads the precise producer that is declared, and ignores its own parameters then; otherwise
/// a producer with its parameters is added when a configuration is compiled.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct PrecisePrefixCacheScorer {
    producer: PrecisePrefixCacheProducer,
}

impl Plugin for PrecisePrefixCacheScorer {
    fn check(&self) -> Result<(), String> {
        self.producer.check_values()
    }

    fn roles(self: Arc<Self>) -> Roles {
        Arc::new(PrefixCacheScorer::default()).roles()
    }

    fn warnings(&self) -> Vec<String> {
        self.producer.warnings()
    }
}

impl PrecisePrefixCacheScorer {
    /// The producer with its parameters.
    pub(crate) fn producer(&self) -> &PrecisePrefixCacheProducer {
        &self.producer
    }
}
