//! Entries of the record that the agent has not got yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use endpoint_picker_wire::record::{RecordedRequest, Records};
use endpoint_picker_wire::{Message, RECORD_FORMAT};

/// Maximum size of the entries, in bytes: some 10 000 chats of 2 KB. The agent takes twice that.
const MAX_BYTES: usize = 2 << 20;

/// The byte before each element of `Records.requests`: its field, and that its length follows (wire type 2 of
/// [Protobuf's encoding](https://protobuf.dev/programming-guides/encoding/#structure)).
const REQUEST_KEY: u8 = (3 << 3) | 2;

/// Entries of the record, from the end of their requests until they are sent. All workers of a process share
/// it.
#[derive(Debug, Default)]
pub struct RecordOutbox(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// The elements of `Records.requests`, one after another: a message with all entries.
    encoded: Vec<u8>,
    requests: u64,
    counts: RecordCounts,
}

/// Entries that no metric has counted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Entries that were added.
    pub added: u64,
    /// Entries that the agent did not get: there was no room for them, or their message failed.
    pub dropped: u64,
}

/// A message with entries.
pub(super) struct EntryMessage {
    pub(super) body: Vec<u8>,
    pub(super) requests: u64,
}

impl RecordOutbox {
    /// Adds a request that has ended.
    pub(crate) fn add(&self, request: &RecordedRequest) {
        // Encoded before the lock.
        let entry = request.encode_length_delimited_to_vec();
        let mut entries = self.lock();
        if entries.encoded.len() + entry.len() >= MAX_BYTES {
            entries.counts.dropped += 1;
            return;
        }
        entries.encoded.push(REQUEST_KEY);
        entries.encoded.extend_from_slice(&entry);
        entries.requests += 1;
        entries.counts.added += 1;
    }

    /// The size of the entries, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lock().encoded.len()
    }

    /// Takes the entries out, as a message that is made now, in microseconds.
    pub(super) fn take(&self, now_us: u64) -> EntryMessage {
        let Entries { encoded, requests, .. } = &mut *self.lock();
        let (mut body, requests) = (core::mem::take(encoded), core::mem::take(requests));
        let head = Records { format: RECORD_FORMAT, now_us, requests: Vec::new() };
        body.extend_from_slice(&head.encode_to_vec());
        EntryMessage { body, requests }
    }

    /// Counts entries whose message failed.
    pub(super) fn count_dropped(&self, requests: u64) {
        self.lock().counts.dropped += requests;
    }

    /// Takes the counts since the last call.
    pub(crate) fn take_counts(&self) -> RecordCounts {
        core::mem::take(&mut self.lock().counts)
    }

    /// A panic of another worker leaves whole entries.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_without_room_are_dropped_and_counted() {
        let outbox = RecordOutbox::default();
        let entry = RecordedRequest { blocks: vec![u64::MAX; 1000], ..RecordedRequest::default() };
        for _ in 0..1000 {
            outbox.add(&entry);
        }
        let RecordCounts { added, dropped } = outbox.take_counts();
        assert_eq!(added + dropped, 1000);
        assert!((200..300).contains(&added) && outbox.bytes() <= MAX_BYTES, "{added}");
        let EntryMessage { body, requests } = outbox.take(7);
        let records = Records::decode(&*body).unwrap();
        assert_eq!((records.format, records.now_us, requests), (RECORD_FORMAT, 7, added));
        assert!(records.requests.iter().all(|request| *request == entry));
        assert_eq!(records.requests.len() as u64, added);
        outbox.add(&entry);
        outbox.count_dropped(added);
        assert_eq!(outbox.take_counts(), RecordCounts { added: 1, dropped: added });
    }
}
