//! Ways to choose compared in a real Envoy, with the workloads, closed loops and servers of
//! [`make simulate`](endpoint_picker_simulation::cell): configurations of the picker, round robin, an
//! omniscient picker as the yardstick and, where it is there, the EPP.
//!
//! A run is one way in front of servers with empty caches. Requests come as in the simulation, sessions and
//! the clients of closed loops wait for their responses, and those sent after the warm-up are measured. The
//! ways take turns, with equal requests.

mod capacities;
mod clients;
mod figures;
mod plan;
mod report;
mod run;
mod servers;

pub(crate) use plan::{ChoosingPlan, Requests};
pub(crate) use run::measure;
