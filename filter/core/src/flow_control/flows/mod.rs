//! The flows of a band that have waiting requests, and which of them goes next.

mod program_aware;

use core::ops::Bound;
use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

use self::program_aware::ProgramAware;
pub(super) use self::program_aware::Programs;
pub use self::program_aware::Tokens;
use super::nanos::Nanos;
use crate::plugin::Fairness;

/// The flows of a band.
#[derive(Debug)]
pub(super) enum Flows {
    /// All flows count as one, number 0.
    GlobalStrict {
        is_empty: bool,
    },
    RoundRobin(RoundRobin),
    ProgramAware(ProgramAware),
}

impl Flows {
    /// `programs` is the index of the policy's state, for policies that keep state.
    pub(super) fn new(fairness: &Fairness, programs: Option<usize>) -> Self {
        match (fairness, programs) {
            (Fairness::RoundRobin, _) => Self::RoundRobin(RoundRobin::default()),
            (Fairness::ProgramAware(_), Some(programs)) => Self::ProgramAware(ProgramAware::new(programs)),
            (Fairness::GlobalStrict, _) | (Fairness::ProgramAware(_), None) => {
                Self::GlobalStrict { is_empty: true }
            }
        }
    }

    /// The number of a flow, which is kept until the flow is [empty](Self::leave).
    pub(super) fn join(&mut self, id: &str, programs: &mut [Programs], now: Nanos) -> u32 {
        match self {
            Self::GlobalStrict { is_empty } => {
                *is_empty = false;
                0
            }
            Self::RoundRobin(flows) => flows.join(id),
            Self::ProgramAware(flows) => flows.join(id, programs, now),
        }
    }

    /// The id of a flow; `None` where all count as one.
    pub(super) fn id(&self, flow: u32) -> Option<&Arc<str>> {
        match self {
            Self::GlobalStrict { .. } => None,
            Self::RoundRobin(flows) => flows.id(flow),
            Self::ProgramAware(flows) => flows.id(flow),
        }
    }

    /// The time from which on the first request of a flow waits has changed.
    pub(super) fn set_head(&mut self, flow: u32, enqueued: Nanos) {
        match self {
            Self::GlobalStrict { .. } | Self::RoundRobin(_) => {}
            Self::ProgramAware(flows) => flows.set_head(flow, enqueued),
        }
    }

    /// The flow has no request any more.
    pub(super) fn leave(&mut self, flow: u32, programs: &mut [Programs], now: Nanos) {
        match self {
            Self::GlobalStrict { is_empty } => *is_empty = true,
            Self::RoundRobin(flows) => flows.leave(flow),
            Self::ProgramAware(flows) => flows.leave(flow, programs, now),
        }
    }

    /// The flow that goes next; `None`: no request waits.
    pub(super) fn pick(&mut self, programs: &[Programs], now: Nanos) -> Option<u32> {
        match self {
            Self::GlobalStrict { is_empty } => (!*is_empty).then_some(0),
            Self::RoundRobin(flows) => flows.pick(),
            Self::ProgramAware(flows) => flows.pick(programs, now),
        }
    }

    /// A program has attained more service, in the policy's state at this index.
    pub(super) fn serve(&mut self, programs: usize, id: &str, service: f64) {
        match self {
            Self::GlobalStrict { .. } | Self::RoundRobin(_) => {}
            Self::ProgramAware(flows) => flows.serve(programs, id, service),
        }
    }
}

/// The flows of a band, and the one that was served last.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct RoundRobin {
    flows: FlowTable<()>,
    last: Option<Arc<str>>,
}

impl RoundRobin {
    fn join(&mut self, id: &str) -> u32 {
        self.flows.number(id).unwrap_or_else(|| self.flows.add(Arc::from(id), ()))
    }

    fn id(&self, flow: u32) -> Option<&Arc<str>> {
        self.flows.id(flow)
    }

    fn leave(&mut self, flow: u32) {
        self.flows.remove(flow);
    }

    /// The flow after the one served last. When no request waits, the next turn begins with the first flow.
    fn pick(&mut self) -> Option<u32> {
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

/// Flows by number and by id.
#[derive(Debug)]
struct FlowTable<T> {
    flows: Slab<(Arc<str>, T)>,
    by_id: BTreeMap<Arc<str>, u32>,
}

impl<T> Default for FlowTable<T> {
    fn default() -> Self {
        Self { flows: Slab::new(), by_id: BTreeMap::new() }
    }
}

impl<T> FlowTable<T> {
    /// Adds a flow that is not there, and returns its number. There are no more flows than waiting requests,
    /// whose numbers have 32 bits too.
    fn add(&mut self, id: Arc<str>, value: T) -> u32 {
        let flow = u32::try_from(self.flows.insert((Arc::clone(&id), value))).unwrap_or(u32::MAX);
        self.by_id.insert(id, flow);
        flow
    }

    fn remove(&mut self, flow: u32) -> Option<(Arc<str>, T)> {
        let (id, value) = self.flows.try_remove(flow as usize)?;
        self.by_id.remove(&id);
        Some((id, value))
    }

    fn get_mut(&mut self, flow: u32) -> Option<&mut T> {
        self.flows.get_mut(flow as usize).map(|(_, value)| value)
    }

    fn get(&self, flow: u32) -> Option<&T> {
        self.flows.get(flow as usize).map(|(_, value)| value)
    }

    fn id(&self, flow: u32) -> Option<&Arc<str>> {
        self.flows.get(flow as usize).map(|(id, _)| id)
    }

    fn number(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    fn by_id(&self) -> &BTreeMap<Arc<str>, u32> {
        &self.by_id
    }
}
