//! Flows in turn, by their ids.

use core::ops::Bound;
use std::sync::Arc;

use super::table::FlowTable;

/// The flows of a band, and the one that was served last.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct RoundRobin {
    flows: FlowTable<()>,
    last: Option<Arc<str>>,
}

impl RoundRobin {
    pub(super) fn join(&mut self, id: &str) -> u32 {
        self.flows.number(id).unwrap_or_else(|| self.flows.add(Arc::from(id), ()))
    }

    pub(super) fn id(&self, flow: u32) -> Option<&Arc<str>> {
        self.flows.id(flow)
    }

    pub(super) fn leave(&mut self, flow: u32) {
        self.flows.remove(flow);
    }

    /// The flow after the one served last. When no request waits, the next turn begins with the first flow.
    pub(super) fn pick(&mut self) -> Option<u32> {
        let by_id = self.flows.by_id();
        let after = self
            .last
            .as_deref()
            .and_then(|last| by_id.range::<str, _>((Bound::Excluded(last), Bound::Unbounded)).next());
        let next = after.or_else(|| by_id.first_key_value());
        let (id, flow) = next.map(|(id, &flow)| (Arc::clone(id), flow)).unzip();
        self.last = id;
        flow
    }
}
