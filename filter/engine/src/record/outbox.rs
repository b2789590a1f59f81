//! Entries of the record that the agent has not got yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use endpoint_picker_wire::record::Records;
use endpoint_picker_wire::{Message, RECORD_FORMAT};

use super::request::RequestRecord;

/// Maximum size of the entries in memory, in bytes: some 6 000 chats of 2 KB. The agent takes messages of
/// twice that.
const MAX_BYTES: usize = 2 << 20;

/// Entries of the record, from the end of their requests until they are sent. All workers of a process share
/// it.
#[derive(Debug, Default)]
pub struct RecordOutbox(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    #[expect(
        clippy::vec_box,
        reason = "a request is in a box already, and only its address moves under the lock"
    )]
    requests: Vec<Box<RequestRecord>>,
    /// Their [sizes](RequestRecord::size) together.
    bytes: usize,
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
    /// Adds a request that is over. It is encoded when it is sent, which natively is on another thread than
    /// the worker's.
    pub(crate) fn add(&self, request: Box<RequestRecord>) {
        let size = request.size();
        let mut entries = self.lock();
        if entries.bytes + size > MAX_BYTES {
            entries.counts.dropped += 1;
            return;
        }
        entries.requests.push(request);
        entries.bytes += size;
        entries.counts.added += 1;
    }

    /// The size of the entries in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Takes the entries out, as a message that is made now, in microseconds.
    pub(super) fn take(&self, now_us: u64) -> EntryMessage {
        let requests = {
            let mut entries = self.lock();
            entries.bytes = 0;
            core::mem::take(&mut entries.requests)
        };
        // Without the lock, which workers wait for.
        let requests: Vec<_> = requests.into_iter().map(|request| request.into_entry()).collect();
        let count = requests.len() as u64;
        let records = Records { format: RECORD_FORMAT, now_us, requests };
        EntryMessage { body: records.encode_to_vec(), requests: count }
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
    use core::time::Duration;

    use endpoint_picker_wire::record::RecordedRequest;

    use super::*;

    #[test]
    fn entries_without_room_are_dropped_and_counted() {
        let outbox = RecordOutbox::default();
        let entry = RecordedRequest { blocks: vec![u64::MAX; 1000], ..RecordedRequest::default() };
        let add = || outbox.add(Box::new(RequestRecord::new(entry.clone(), Duration::ZERO)));
        (0..1000).for_each(|_| add());
        let RecordCounts { added, dropped } = outbox.take_counts();
        assert_eq!(added + dropped, 1000);
        assert!((200..300).contains(&added) && outbox.bytes() <= MAX_BYTES, "{added}");
        let EntryMessage { body, requests } = outbox.take(7);
        assert!(outbox.bytes() == 0 && body.len() <= MAX_BYTES, "{}", body.len());
        let records = Records::decode(&*body).unwrap();
        assert_eq!((records.format, records.now_us, requests), (RECORD_FORMAT, 7, added));
        assert!(records.requests.iter().all(|request| *request == entry));
        assert_eq!(records.requests.len() as u64, added);
        add();
        outbox.count_dropped(added);
        assert_eq!(outbox.take_counts(), RecordCounts { added: 1, dropped: added });
    }
}
