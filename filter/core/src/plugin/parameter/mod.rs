//! Parameters that several plugins have in common.

pub(super) mod deserializer;
pub mod duration;

use core::fmt::Display;

/// The prefix producer that is read where no name is given.
pub(crate) const PREFIX_PRODUCER: &str = "approx-prefix-cache-producer";

/// The load producer that is read where no name is given.
pub(crate) const LOAD_PRODUCER: &str = "inflight-load-producer";

/// The latency predictor that is read where no name is given.
pub(crate) const LATENCY_PREDICTOR: &str = "predicted-latency-producer";

/// The producer of multimodal matches that is read where no name is given.
pub(crate) const MEDIA_PRODUCER: &str = "mm-embeddings-cache-producer";

/// The topology extractor that is read where no name is given.
pub(crate) const TOPOLOGY_EXTRACTOR: &str = "topology-extractor";

/// The profile of this name computes prompts for another.
pub(crate) const PREFILL: &str = "prefill";

/// `name`, or `default` if it is empty.
pub(crate) fn or_default<'a>(name: &'a str, default: &'a str) -> &'a str {
    if name.is_empty() { default } else { name }
}

/// Refuses a parameter's value unless it is allowed.
pub(crate) fn allow(
    is_allowed: bool,
    parameter: &str,
    value: impl Display,
    allowed: &str,
) -> Result<(), String> {
    if is_allowed { Ok(()) } else { Err(format!("{parameter} is {value}; allowed is {allowed}")) }
}

/// The length of a picker's list: 0 and less count as 1, as in the EPP.
pub(crate) fn list_length(configured: i64) -> usize {
    usize::try_from(configured).unwrap_or(0).max(1)
}
