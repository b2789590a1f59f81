//! Conversions of pools and readings, in both directions.

use core::fmt;
use core::time::Duration;

use endpoint_picker::pool::reading::{Lora, Reading, ServedModel};
use endpoint_picker::pool::{Endpoint, Endpoints, PoolError};

use crate::v1;

/// The message of a pool, without a policy.
pub fn topology_from_core(pool: &Endpoints) -> v1::Topology {
    let endpoints = pool.as_slice().iter().map(|endpoint| v1::Endpoint {
        name: endpoint.name().to_owned(),
        address: endpoint.printed_address().to_owned(),
        labels: endpoint
            .labels()
            .map(|(key, value)| v1::Label { key: key.to_owned(), value: value.to_owned() })
            .collect(),
    });
    v1::Topology { pool: pool.name().to_owned(), endpoints: endpoints.collect(), policy: None }
}

/// The pool of a message. Refuses addresses that are not `ip:port`, and whatever [`Endpoints::new`] refuses.
pub fn topology_into_core(topology: v1::Topology) -> Result<Endpoints, TopologyError> {
    let endpoints = topology
        .endpoints
        .into_iter()
        .map(|endpoint| {
            let address = endpoint.address.parse().map_err(|_| TopologyError::Address {
                endpoint: endpoint.name.clone(),
                address: endpoint.address,
            })?;
            let labels = endpoint.labels.into_iter().map(|label| (label.key, label.value)).collect();
            Ok(Endpoint::new(endpoint.name, address, labels))
        })
        .collect::<Result<_, _>>()?;
    Endpoints::new(topology.pool, endpoints).map_err(TopologyError::Pool)
}

/// The message of a reading at `now`, a time on the clock of [`Reading::updated`].
pub fn reading_from_core(reading: &Reading, now: Duration) -> v1::Reading {
    v1::Reading {
        ready: reading.ready,
        age_ms: reading.age(now).map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        waiting: reading.waiting,
        running: reading.running,
        kv_usage: reading.kv_usage,
        lora: reading.lora.as_ref().map(|lora| v1::Lora {
            running: lora.running.clone(),
            waiting: lora.waiting.clone(),
            max: lora.max,
        }),
        block_size: reading.block_size,
        num_blocks: reading.num_blocks,
        cache_tokens: reading.cache_tokens,
        cached_since_ms: reading
            .cached_since
            .map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        attributes: reading
            .attributes
            .iter()
            .map(|(name, value)| v1::Attribute { name: name.clone(), value: *value })
            .collect(),
        models: reading.models.as_deref().map(|models| v1::ModelList {
            models: models
                .iter()
                .map(|model| v1::ServedModel { id: model.id.clone(), is_adapter: model.is_adapter })
                .collect(),
        }),
    }
}

/// The reading of a message that arrived at `now`, on the receiver's clock. A KV usage or an attribute that
/// is not finite counts as absent.
pub fn reading_into_core(reading: v1::Reading, now: Duration) -> Reading {
    Reading {
        ready: reading.ready,
        updated: reading.age_ms.map(|age| now.saturating_sub(Duration::from_millis(age))),
        waiting: reading.waiting,
        running: reading.running,
        kv_usage: reading.kv_usage.filter(|usage| usage.is_finite()),
        lora: reading.lora.map(|lora| Lora { running: lora.running, waiting: lora.waiting, max: lora.max }),
        block_size: reading.block_size,
        num_blocks: reading.num_blocks,
        cache_tokens: reading.cache_tokens,
        cached_since: reading.cached_since_ms.map(Duration::from_millis),
        attributes: reading
            .attributes
            .into_iter()
            .filter(|attribute| attribute.value.is_finite())
            .map(|attribute| (attribute.name, attribute.value))
            .collect(),
        models: reading.models.map(|list| {
            let models = list.models.into_iter();
            models.map(|model| ServedModel { id: model.id, is_adapter: model.is_adapter }).collect()
        }),
    }
}

/// Why a topology message is not a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// This endpoint's address is not `ip:port`.
    Address {
        /// The endpoint's name.
        endpoint: String,
        /// The text in place of an address.
        address: String,
    },
    /// The endpoints are not a pool.
    Pool(PoolError),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { endpoint, address } => {
                write!(
                    f,
                    "endpoint {endpoint:?} has address {address:?}; must be ip:port, with an IPv6 address in brackets"
                )
            }
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for TopologyError {}
