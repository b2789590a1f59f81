//! The readings of a view as they came: those that the view before has are not decoded again.
//!
//! The reader compares, and the agent sends all readings: an agent that sent changes alone would have to keep
//! what each reader has, and a worker that has missed a snapshot in shared data could not read the next one.

use core::time::Duration;
use std::sync::{Arc, Weak};

use endpoint_picker::pool::reading::Reading;
use endpoint_picker::state::ChangedReadings;
use endpoint_picker_wire::{self as wire, Bytes, DecodeError};

use super::PoolView;

/// The readings of a view.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedReadings {
    /// In the pool's order.
    pub(super) readings: Vec<Reading>,
    /// The message of each; none where they did not come as messages.
    messages: Vec<Bytes>,
    changed: Option<Changed>,
}

/// The places of the readings that differ from those of an older view.
#[derive(Clone, Debug)]
struct Changed {
    older: Weak<PoolView>,
    places: Vec<usize>,
}

impl ReceivedReadings {
    /// Readings that did not come as messages.
    pub(super) fn unencoded(readings: Vec<Reading>) -> Self {
        Self { readings, ..Self::default() }
    }

    /// Decodes readings, which arrived at this time. `older` is a view of the same endpoints, if any is.
    pub(super) fn decode(
        messages: Vec<Bytes>,
        older: Option<&Arc<PoolView>>,
        arrived: Duration,
    ) -> Result<Self, DecodeError> {
        let known = older.map(|older| &older.received);
        let (mut readings, mut places) = (Vec::with_capacity(messages.len()), Vec::new());
        for (place, message) in messages.iter().enumerate() {
            let last = known.and_then(|known| Some((known.messages.get(place)?, known.readings.get(place)?)));
            let last = last.map(|(message, reading)| (&message[..], reading));
            let (reading, is_other) = wire::next_reading(last, message, arrived)?;
            if is_other {
                places.push(place);
            }
            readings.push(reading);
        }
        let is_as_long = known.is_some_and(|known| known.readings.len() == readings.len());
        let older = older.filter(|_| is_as_long).map(Arc::downgrade);
        Ok(Self { readings, messages, changed: older.map(|older| Changed { older, places }) })
    }

    /// The readings that differ from an older view's.
    pub(super) fn changed_since(&self, older: &Arc<PoolView>) -> ChangedReadings<'_> {
        // The address is of no other view while the weak pointer holds the memory.
        let changed = self.changed.as_ref().filter(|changed| changed.older.as_ptr() == Arc::as_ptr(older));
        changed.map_or(ChangedReadings::All, |changed| ChangedReadings::At(&changed.places))
    }
}
