//! Proxies with pickers, agents and model servers in simulated time.
//!
//! Nothing but the simulation takes processor time, so a figure follows from the rules and not from the
//! machine, and minutes of many proxies take seconds. A simulation is a loop over the events of a [`world`]:
//! the proxies share by themselves, and each simulation adds events of its own for requests and servers.
//!
//! - [`proxy`]: a ledger with a sharing client, and its picker.
//! - [`world`]: proxies, the feed through which they share, and the event loop.
//! - [`servers`]: servers with a number of places.
//! - [`traces`]: published traces, replayed.
//! - [`workload`]: requests drawn from a seed. [`capacity`]: the number of them that servers can serve.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a simulation that cannot continue has failed"
)]

pub mod capacity;
pub mod cell;
pub mod proxy;
pub mod servers;
pub mod traces;
pub mod workload;
pub mod world;
