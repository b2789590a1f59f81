//! The messages of an agent to the store.

use core::time::Duration;

use endpoint_picker_wire::changes::{StoredReading, StoredReadings};
use endpoint_picker_wire::{CHANGES_FORMAT, Message, reading_from_core};

use crate::scrape::slot::{Health, Slot};

/// What is to be sent to the store.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) claims: Vec<Claim>,
    pub(super) released: Vec<u64>,
    pub(super) readings: Vec<StoredReading>,
    /// An entry is to be added, also without readings.
    pub(super) is_shown: bool,
}

/// A lease to take or to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) scrape: u64,
    pub(super) term: Duration,
    /// Also from another agent.
    pub(super) is_forced: bool,
}

/// The state of an endpoint, as others take it.
pub(super) fn stored(scrape: u64, slot: &Slot, now: Duration) -> StoredReading {
    StoredReading {
        scrape,
        reading: reading_from_core(&slot.reading(), now).encode_to_vec().into(),
        failing: slot.health() == Health::Failing,
        kv_usage_metric: slot.kv_usage_metric().map_or_else(String::new, |metric| metric.as_ref().to_owned()),
    }
}

/// The entry of a stream with these readings.
pub(super) fn entry(agent: u64, readings: Vec<StoredReading>) -> Vec<u8> {
    StoredReadings { format: CHANGES_FORMAT, agent, readings }.encode_to_vec()
}
