//! The flows of a band that have waiting requests, and which of them goes next.

mod program_aware;
pub(super) mod programs;
mod round_robin;
mod table;

use std::sync::Arc;

use self::program_aware::ProgramAware;
use self::programs::Programs;
use self::round_robin::RoundRobin;
use super::time::Nanos;
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
    /// `programs` is the place of the policy's memory, for policies that have one.
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

    /// A program has attained more service, by the memory at this place.
    pub(super) fn serve(&mut self, programs: usize, id: &str, service: f64) {
        match self {
            Self::GlobalStrict { .. } | Self::RoundRobin(_) => {}
            Self::ProgramAware(flows) => flows.serve(programs, id, service),
        }
    }
}
