//! Ways to pick.

mod engine;
#[cfg(feature = "testing")]
mod exact;
mod omniscient;
mod store;

pub use omniscient::Omniscient;

use self::engine::EnginePicker;
use super::fleet::RunningFleet;
use super::request::SimulatedRequest;
use endpoint_picker_engine::sharing::LocalPeer;
use endpoint_picker_wire::v1;
use std::sync::Arc;
use std::time::Duration;

/// The first time of a simulation, for the engine: long after the epoch, as real times are.
pub const START: Duration = Duration::from_secs(1_000_000);

/// A way to pick.
#[derive(Clone, Debug)]
pub enum Mechanism {
    /// Each server in turn.
    RoundRobin,
    /// Pick by the true state of all servers.
    Omniscient,
    /// Pick the server that the request went to when it was recorded.
    Recorded,
    /// Pick by the rules of a policy.
    Rules {
        /// The policy, as the agent publishes it.
        policy: Box<v1::Policy>,
        /// How the prompts that servers have cached are known.
        contents: Contents,
    },
}

/// How a way to pick knows the prompts that servers have cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The proxy knows them by the prompts that it has sent.
    Sent,
    /// The index is replaced by the contents of the caches before each decision.
    #[cfg(feature = "testing")]
    Exact,
    /// The agent knows them by the servers' KV-cache events.
    Events,
}

impl Mechanism {
    /// Whether it follows the servers' KV-cache events.
    pub fn follows_events(&self) -> bool {
        matches!(self, Self::Rules { contents: Contents::Events, .. })
    }
}

/// One picker in front of a fleet.
#[derive(Debug)]
pub struct Picker(Kind);

#[derive(Debug)]
enum Kind {
    Engine(Box<EnginePicker>),
    #[cfg(feature = "testing")]
    Exact(Box<EnginePicker>),
    RoundRobin {
        next: usize,
    },
    Omniscient(Omniscient),
    Recorded,
}

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// It goes to the server of this number.
    Server(usize),
    /// It is refused.
    Refused,
    /// It waits in the queue in front of the pool.
    Waits,
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
    /// numbers. With a limit, each request is sheddable and has it for its first token. The error says why
    /// the policy is none.
    pub fn new(
        mechanism: &Mechanism,
        servers: usize,
        limit: Option<Duration>,
        seed: u64,
        number: usize,
    ) -> Result<Self, String> {
        let seed = seed ^ ((number as u64) << 32);
        Ok(Self(match mechanism {
            Mechanism::RoundRobin => Kind::RoundRobin { next: number },
            Mechanism::Omniscient => Kind::Omniscient(Omniscient::default()),
            Mechanism::Recorded => Kind::Recorded,
            Mechanism::Rules { policy, contents } => {
                let servers =
                    u16::try_from(servers).map_err(|_| format!("{servers} servers are too many"))?;
                let engine = EnginePicker::new(v1::Policy::clone(policy), servers, limit, seed)?;
                match contents {
                    Contents::Sent | Contents::Events => Kind::Engine(Box::new(engine)),
                    #[cfg(feature = "testing")]
                    Contents::Exact => Kind::Exact(Box::new(engine)),
                }
            }
        }))
    }

    /// Picks a server for a request, which is then in flight there, or has it wait.
    pub fn pick(
        &mut self,
        request: &Arc<SimulatedRequest>,
        number: usize,
        fleet: &RunningFleet,
        now: Duration,
    ) -> Pick {
        match &mut self.0 {
            Kind::Engine(engine) => engine.pick(request, number, now),
            #[cfg(feature = "testing")]
            Kind::Exact(engine) => {
                engine.index_contents(request, fleet);
                engine.pick(request, number, now)
            }
            Kind::RoundRobin { next } => {
                *next = (*next + 1) % fleet.len();
                Pick::Server(*next)
            }
            Kind::Omniscient(omniscient) => {
                let outlook = |server| fleet.outlook(server, request.work(), now);
                Pick::Server(omniscient.pick(&(0..fleet.len()).map(outlook).collect::<Vec<_>>(), now))
            }
            Kind::Recorded => Pick::Server(request.recorded.unwrap_or(number) % fleet.len()),
        }
    }

    /// Has the queue in front of the pool dispatch a request if there is room, and reject those that have
    /// waited for too long.
    pub fn tick_queue(&mut self, now: Duration) {
        if let Some(engine) = self.engine() {
            engine.tick_queue(now);
        }
    }

    /// The requests that the queue has resumed since the last call, by their numbers. None of them waits.
    pub fn take_resumed(&mut self, now: Duration) -> Vec<(usize, Pick)> {
        self.engine().map(|engine| engine.take_resumed(now)).unwrap_or_default()
    }

    /// When the queue is to be ticked; `None`: nothing waits.
    pub fn wake_at(&mut self) -> Option<Duration> {
        self.engine()?.wake_at()
    }

    /// A chunk of a response has come.
    pub fn chunk(&mut self, number: usize, chunk: Chunk, now: Duration) {
        if let Some(engine) = self.engine() {
            engine.chunk(number, chunk, now);
        }
    }

    /// Readings that an agent took have arrived.
    pub fn read(&mut self, readings: &[v1::Reading], now: Duration) {
        if let Some(engine) = self.engine() {
            engine.read(readings.to_vec(), now);
        }
    }

    /// Its ledger, to share with other proxies. `None`: it has nothing to share.
    pub fn peer(&mut self) -> Option<&mut LocalPeer> {
        self.engine().map(EnginePicker::peer)
    }

    fn engine(&mut self) -> Option<&mut EnginePicker> {
        match &mut self.0 {
            Kind::Engine(engine) => Some(engine),
            #[cfg(feature = "testing")]
            Kind::Exact(engine) => Some(engine),
            Kind::RoundRobin { .. } | Kind::Omniscient(_) | Kind::Recorded => None,
        }
    }

    /// The agent's response about the caches of the servers has arrived.
    pub fn update_caches(&mut self, messages: &[Vec<u8>], now: Duration) {
        if let Some(engine) = self.engine() {
            engine.update_caches(messages, now);
        }
    }
}
