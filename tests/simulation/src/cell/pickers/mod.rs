//! The pickers that are compared.

mod engine;
mod omniscient;
mod store;
mod variant;

pub use omniscient::Omniscient;
pub use variant::{Contents, Mechanism, VARIANTS, Variant};

use self::engine::EnginePicker;
use super::fleet::RunningFleet;
use super::request::SimulatedRequest;
use endpoint_picker_engine::sharing::LocalPeer;
use endpoint_picker_wire::v1;
use std::sync::Arc;
use std::time::Duration;

/// One picker in front of a fleet.
#[derive(Debug)]
pub struct Picker(Kind);

#[derive(Debug)]
enum Kind {
    Engine(Box<EnginePicker>),
    RoundRobin { next: usize },
    Omniscient(Omniscient),
}

/// A chunk of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// The first one, with the first token.
    First,
    /// One between the first and the last one.
    More,
    /// The last one, with the usage: this many tokens of the prompt were cached.
    Last {
        /// The tokens.
        cached: usize,
    },
}

impl Picker {
    /// A picker that has seen no request, of the proxy of this number. The seed is that of its random
    /// numbers. With a limit, each request is sheddable and has it for its first token.
    pub fn new(variant: &Variant, servers: usize, limit: Option<Duration>, seed: u64, number: usize) -> Self {
        let seed = seed ^ ((number as u64) << 32);
        Self(match variant.mechanism {
            Mechanism::RoundRobin => Kind::RoundRobin { next: number },
            Mechanism::Omniscient => Kind::Omniscient(Omniscient::default()),
            Mechanism::Rules { .. } => {
                Kind::Engine(Box::new(EnginePicker::new(variant, servers, limit, seed)))
            }
        })
    }

    /// Picks a server for a request, which is then in flight there; `None`: it is refused.
    pub fn pick(
        &mut self,
        request: &Arc<SimulatedRequest>,
        number: usize,
        fleet: &RunningFleet,
        now: Duration,
    ) -> Option<usize> {
        match &mut self.0 {
            Kind::Engine(engine) => engine.pick(request, number, fleet, now),
            Kind::RoundRobin { next } => {
                *next = (*next + 1) % fleet.len();
                Some(*next)
            }
            Kind::Omniscient(omniscient) => {
                let outlook = |server| fleet.outlook(server, request.work(), now);
                Some(omniscient.pick(&(0..fleet.len()).map(outlook).collect::<Vec<_>>(), now))
            }
        }
    }

    /// A chunk of a response has come.
    pub fn chunk(&mut self, number: usize, chunk: Chunk, now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.chunk(number, chunk, now);
        }
    }

    /// Readings that an agent took have arrived.
    pub fn read(&mut self, readings: &[v1::Reading], now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.read(readings.to_vec(), now);
        }
    }

    /// Its ledger, to share with other proxies. `None`: it has nothing to share.
    pub(super) fn peer(&mut self) -> Option<&mut LocalPeer> {
        match &mut self.0 {
            Kind::Engine(engine) => Some(engine.peer()),
            Kind::RoundRobin { .. } | Kind::Omniscient(_) => None,
        }
    }

    /// The agent's response about the caches of the servers has arrived.
    pub fn update_caches(&mut self, messages: &[Vec<u8>], now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.update_caches(messages, now);
        }
    }
}
