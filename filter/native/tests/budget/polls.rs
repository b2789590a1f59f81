//! The polls whose cost is budgeted: of 1 000 endpoints all readings are newer, or a few.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{AgentResponse, PollOutcome, PollTimes, SnapshotClient};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing::{busy_reading, snapshot, topology};
use endpoint_picker_native::pool::SharedPool;
use endpoint_picker_wire::{Message as _, v1};

use crate::rules::expected_latency;

/// The columns of the table, each with the number of readings that have changed.
pub(crate) const POLLS: [(&str, u16); 2] = [("poll", ENDPOINTS), ("poll-10", 10)];

const ENDPOINTS: u16 = 1_000;

const START: Duration = Duration::from_secs(1_000);

/// Milliseconds from one poll to the next.
const EVERY: u64 = 50;

const TIMES: PollTimes = PollTimes { wait: Duration::from_secs(1), timeout: Duration::from_secs(2) };

/// A pool by the shipped rules, and its polls.
pub(crate) struct Polls {
    pool: SharedPool,
    client: SnapshotClient,
    changed: u16,
    number: u64,
}

impl Polls {
    /// Polls that each find this many readings changed, after the first one, which decodes all readings.
    pub(crate) fn new(changed: u16) -> Self {
        let pool = SharedPool::default();
        let topology = Topology::compile(topology("p", 0..ENDPOINTS, expected_latency())).unwrap();
        pool.adopt(Arc::new(PoolView::new(Arc::new(topology), readings(changed, 0), START)));
        let mut polls = Self { pool, client: SnapshotClient::new("p", TIMES), changed, number: 0 };
        let first = polls.next_response();
        polls.take(first);
        polls
    }

    /// The agent's response to the next poll.
    pub(crate) fn next_response(&mut self) -> Vec<u8> {
        self.number += 1;
        readings(self.changed, self.number).encode_to_vec()
    }

    /// Takes a response into use.
    pub(crate) fn take(&mut self, body: Vec<u8>) {
        let now = START + Duration::from_millis(EVERY * self.number);
        let response = Ok(AgentResponse { status: 200, body });
        let view = self.pool.view();
        let outcome = self.client.finish(response, &view, now, |newer| {
            self.pool.adopt(Arc::new(newer.view));
            Ok(())
        });
        assert!(matches!(outcome, PollOutcome::Published), "{outcome:?}");
    }
}

/// The readings of a poll. Those that change are taken with each poll and have other numbers then.
fn readings(changed: u16, poll: u64) -> v1::Snapshot {
    let reading = |number| {
        let taken = if number < changed { poll } else { 0 };
        let reading = busy_reading(number);
        v1::Reading {
            age_ms: Some(EVERY * (poll - taken) + u64::from(number % 50)),
            running: reading.running.map(|running| running + taken),
            cached_since_ms: Some(1_700_000_000_000),
            ..reading
        }
    };
    snapshot((0..ENDPOINTS).map(reading))
}
