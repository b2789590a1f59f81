//! Numbers for the flows that have waiting requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

/// Flows by number and by id.
#[derive(Debug)]
pub(super) struct FlowTable<T> {
    flows: Slab<(Arc<str>, T)>,
    by_id: BTreeMap<Arc<str>, u32>,
}

impl<T> Default for FlowTable<T> {
    fn default() -> Self {
        Self { flows: Slab::new(), by_id: BTreeMap::new() }
    }
}

impl<T> FlowTable<T> {
    /// Adds a flow that is not there, and returns its number. Flows are at most as many as waiting requests, whose numbers have 32
    /// bits too.
    pub(super) fn add(&mut self, id: Arc<str>, value: T) -> u32 {
        let flow = u32::try_from(self.flows.insert((Arc::clone(&id), value))).unwrap_or(u32::MAX);
        self.by_id.insert(id, flow);
        flow
    }

    pub(super) fn remove(&mut self, flow: u32) -> Option<(Arc<str>, T)> {
        let (id, value) = self.flows.try_remove(flow as usize)?;
        self.by_id.remove(&id);
        Some((id, value))
    }

    pub(super) fn get_mut(&mut self, flow: u32) -> Option<&mut T> {
        self.flows.get_mut(flow as usize).map(|(_, value)| value)
    }

    pub(super) fn get(&self, flow: u32) -> Option<&T> {
        self.flows.get(flow as usize).map(|(_, value)| value)
    }

    pub(super) fn id(&self, flow: u32) -> Option<&Arc<str>> {
        self.flows.get(flow as usize).map(|(id, _)| id)
    }

    pub(super) fn number(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    pub(super) fn by_id(&self) -> &BTreeMap<Arc<str>, u32> {
        &self.by_id
    }
}
