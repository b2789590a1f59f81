//! A pool, and changes in it.

use std::sync::Arc;
use std::time::Duration;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Load;
use endpoint_picker_engine::ledger::{Change, ChangeKind, LedgerStore};
use endpoint_picker_engine::testing;
pub(crate) use endpoint_picker_engine::testing::START;
use endpoint_picker_workers::{Replica, SharedData, next_worker_number};

pub(crate) const POOL: &str = "default/pool";
pub(crate) const AVOID: Duration = Duration::from_millis(250);
pub(crate) const ONE: Load = Load { requests: 1, tokens: 100 };
pub(crate) const NONE: Load = Load { requests: 0, tokens: 0 };

pub(crate) fn pool(hosts: &[u8]) -> Arc<Endpoints> {
    testing::pool(POOL, hosts.iter().map(|&host| host.into()))
}

pub(crate) fn key(host: u8) -> u64 {
    testing::key(host.into())
}

pub(crate) fn started(host: u8) -> Change {
    Change::Endpoint { endpoint: key(host), kind: ChangeKind::Started(ONE) }
}

pub(crate) fn ended(host: u8) -> Change {
    Change::Endpoint { endpoint: key(host), kind: ChangeKind::Ended(ONE) }
}

/// A worker that has the pool of hosts 1 and 2.
pub(crate) fn worker<S: SharedData<Error: std::fmt::Debug>>(data: S) -> Replica<S> {
    let number = next_worker_number(&data).unwrap();
    let mut replica = Replica::new(data, POOL, number).unwrap();
    replica.adopt(pool(&[1, 2]), [&Pipeline::default()], AVOID);
    replica
}
