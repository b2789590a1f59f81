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

impl Picker {
    /// A picker that has seen no request. The seed is that of its random numbers. With a limit, each request is sheddable and has it for
    /// its first token.
    pub fn new(variant: &Variant, servers: usize, limit: Option<Duration>, seed: u64) -> Self {
        Self(match variant.mechanism {
            Mechanism::RoundRobin => Kind::RoundRobin { next: 0 },
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

    /// The first token of a response has come.
    pub fn first_token(&mut self, number: usize, now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.first_token(number, now);
        }
    }

    /// The last token of a response has come, with its usage: this many tokens of the prompt were cached.
    pub fn last_token(&mut self, number: usize, cached: usize, now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.last_token(number, cached, now);
        }
    }

    /// Readings that an agent took have arrived.
    pub fn read(&mut self, readings: Vec<v1::Reading>, now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.read(readings, now);
        }
    }

    /// The agent's response about the caches of the servers has arrived.
    pub fn update_caches(&mut self, messages: &[Vec<u8>], now: Duration) {
        if let Kind::Engine(engine) = &mut self.0 {
            engine.update_caches(messages, now);
        }
    }
}
