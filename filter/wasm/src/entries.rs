//! What this VM did and what others did, between the rules' types and the entries of the VMs' log.
//!
//! Indices mean nothing to a VM with another topology, so entries name endpoints and plugins by their keys.

use core::time::Duration;

use endpoint_picker::cycle::Load;
use endpoint_picker::memory::{Change, Event};
use endpoint_picker::pool::Pool;
use endpoint_picker::prompt::BlockHashes;
use endpoint_picker_wire::shared::entry::What;
use endpoint_picker_wire::shared::{
    self, Answered, BoundSession, EndpointLoad, Entry, Failed, Loads, Moved, SentCold, SentPrompt,
};

/// `vm` put a load on an endpoint.
pub(crate) fn started(vm: u64, endpoint: u64, load: Load) -> Entry {
    Entry { vm, endpoint, what: Some(What::Started(from_load(load))) }
}

/// A load that `vm` put on an endpoint is over.
pub(crate) fn ended(vm: u64, endpoint: u64, load: Load) -> Entry {
    Entry { vm, endpoint, what: Some(What::Ended(from_load(load))) }
}

/// A load that `vm` put on an endpoint is on another one now.
pub(crate) fn moved(vm: u64, endpoint: u64, to: u64, load: Load) -> Entry {
    Entry { vm, endpoint, what: Some(What::Moved(Moved { to, load: Some(from_load(load)) })) }
}

/// All the loads that `vm` has put on endpoints.
pub(crate) fn loads(vm: u64, loads: impl Iterator<Item = (u64, Load)>) -> Entry {
    let loads =
        loads.map(|(endpoint, load)| EndpointLoad { endpoint, load: Some(from_load(load)) }).collect();
    Entry { vm, endpoint: 0, what: Some(What::Loads(Loads { loads })) }
}

/// An endpoint failed a request of `vm`.
pub(crate) fn failed(vm: u64, endpoint: u64, at: Duration) -> Entry {
    Entry { vm, endpoint, what: Some(What::Failed(Failed { at_ns: nanoseconds(at) })) }
}

/// An endpoint answered a request of `vm`.
pub(crate) fn answered(vm: u64, endpoint: u64, at: Duration) -> Entry {
    Entry { vm, endpoint, what: Some(What::Answered(Answered { at_ns: nanoseconds(at) })) }
}

/// A plugin is to remember something.
pub(crate) fn remembered(vm: u64, event: Event, pool: &Pool) -> Option<Entry> {
    let plugin = event.plugin;
    let (endpoint, what) = match event.change {
        Change::SentPrompt { endpoint, capacity, hashes } => {
            let ends = hashes.ends().iter().map(|&end| u32::try_from(end).unwrap_or(u32::MAX)).collect();
            let (capacity, hashes) = (capacity as u64, hashes.all().to_vec());
            (endpoint, What::SentPrompt(SentPrompt { plugin, capacity, hashes, ends }))
        }
        Change::SentCold { endpoint } => (endpoint, What::SentCold(SentCold { plugin })),
        Change::BoundSession { session, endpoint, at } => {
            (endpoint, What::BoundSession(BoundSession { plugin, session, at_ns: nanoseconds(at) }))
        }
        _ => return None,
    };
    Some(Entry { vm, endpoint: pool.endpoints().get(endpoint)?.key(), what: Some(what) })
}

/// What a plugin is to remember; `None` if this VM has no such endpoint, or the entry is of another kind.
pub(crate) fn event(endpoint: u64, what: What, pool: &Pool) -> Option<Event> {
    let endpoint = pool.index_of(endpoint)?;
    let (plugin, change) = match what {
        What::SentPrompt(SentPrompt { plugin, capacity, hashes, ends }) => {
            let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
            let ends = ends.into_iter().map(|end| end as usize).collect();
            let hashes = BlockHashes::from_parts(hashes, ends)?;
            (plugin, Change::SentPrompt { endpoint, capacity, hashes })
        }
        What::SentCold(SentCold { plugin }) => (plugin, Change::SentCold { endpoint }),
        What::BoundSession(BoundSession { plugin, session, at_ns }) => {
            (plugin, Change::BoundSession { session, endpoint, at: Duration::from_nanos(at_ns) })
        }
        _ => return None,
    };
    Some(Event { plugin, change })
}

/// A load as the rules count it.
pub(crate) fn into_load(load: shared::Load) -> Load {
    Load { requests: load.requests, tokens: load.tokens }
}

/// Enough until the year 2554.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn from_load(load: Load) -> shared::Load {
    shared::Load { requests: load.requests, tokens: load.tokens }
}
