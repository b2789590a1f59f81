//! Where the requests of a cell come from, and when.

use super::workloads::study::{Conversation, StudyConversations};
use super::workloads::{Workload, agent_sessions, in_turn};
use metrics_agent_replay::simulation::fleet::Fleet;
use metrics_agent_replay::simulation::request::SimulatedRequest;
use metrics_agent_replay::simulation::run::Clients;
use metrics_agent_replay::simulation::sessions::Arrival;
use metrics_agent_replay::simulation::span::Span;
use metrics_agent_server_model::{Allocation, ServiceTimes};
use std::sync::Arc;
use std::time::Duration;

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Sessions that begin by themselves. Half the number of measured requests come before, and fill the
    /// caches.
    Open {
        /// The sessions, and their servers.
        workload: Workload,
        /// Requests per second.
        per_second: f64,
    },
    /// Sessions of agents that begin by themselves and need more cache from minute to minute, until they need
    /// this many times the caches. At the start they need [less](AT_START); requests are measured after
    /// [some time](RISING).
    OverCaches(f64),
    /// This many conversations in turn, as inference-perf sends them, to four servers with empty caches. All
    /// requests are measured.
    InTurn(usize),
    /// Clients that wait for each response before they send their next request.
    Closed(ClosedLoop),
}

/// Clients in front of two servers with small caches, as in the study with two real vLLM. A third of the
/// requests comes before those that are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Clients.
    pub clients: usize,
    /// Conversations that they continue.
    pub conversations: usize,
    /// Time from a response to the client's next request.
    pub pause: Duration,
    /// Whether both servers share one processor.
    pub shares_processor: bool,
}

impl ClosedLoop {
    /// The study's: four clients, 24 conversations.
    const STUDY: Self =
        Self { clients: 4, conversations: 24, pause: Duration::ZERO, shares_processor: false };

    /// The loops of the published tables, by the difference to the study's.
    pub const ALL: [(&str, Self); 8] = [
        ("two servers, 4 clients", Self::STUDY),
        ("two servers, 1 client", Self { clients: 1, ..Self::STUDY }),
        ("two servers, 2 clients", Self { clients: 2, ..Self::STUDY }),
        ("two servers, 8 clients", Self { clients: 8, ..Self::STUDY }),
        ("two servers, 48 conversations", Self { conversations: 48, ..Self::STUDY }),
        ("two servers, 10 conversations", Self { conversations: 10, ..Self::STUDY }),
        ("two servers, one processor", Self { shares_processor: true, ..Self::STUDY }),
        ("two servers, 300 ms of thought", Self { pause: Duration::from_millis(300), ..Self::STUDY }),
    ];

    /// Its conversations.
    pub fn conversations(&self, seed: u64) -> StudyConversations {
        StudyConversations::new(seed, self.conversations)
    }
}

/// Servers of the study: 12 800 tokens of cache, 0.15 ms for a token of a prompt and 12 ms for a step, 8
/// places.
const STUDY_TIMES: ServiceTimes = ServiceTimes {
    max_running: 8,
    step: Duration::from_millis(12),
    step_per_sequence: Duration::ZERO,
    step_per_context_token: Duration::ZERO,
    prefill_per_token: Duration::from_micros(150),
    doubling_context: None,
    reads_apart: false,
    max_batched_tokens: 2048,
    kv_blocks: 800,
    allocation: Allocation::AsNeeded,
    max_loras: 3,
    lora_load: Duration::ZERO,
    stream_interval: 1,
};

/// Servers like llm-d-inference-sim in `make bench-field`: 16 384 tokens of cache, 0.1 ms for a token of a
/// prompt and 5 ms for a step, 16 places.
const FIELD_TIMES: ServiceTimes = ServiceTimes {
    max_running: 16,
    step: Duration::from_millis(5),
    prefill_per_token: Duration::from_micros(100),
    kv_blocks: 1024,
    max_loras: 0,
    ..STUDY_TIMES
};

impl Source {
    /// The servers.
    pub fn fleet(&self) -> Fleet {
        match self {
            Self::Open { workload, .. } => workload.fleet(),
            Self::OverCaches(_) => Workload::AgentSessions.fleet(),
            Self::InTurn(_) => Fleet::equal(4, FIELD_TIMES),
            Self::Closed(closed) => {
                let shares_processor = closed.shares_processor;
                Fleet { shares_processor, ..Fleet::equal(2, STUDY_TIMES) }
            }
        }
    }

    /// When requests are measured, if there are about this many of them.
    pub(super) fn span(&self, measured: usize) -> Span {
        match self {
            Self::Open { per_second, .. } => {
                let lasting = Duration::from_secs_f64(measured as f64 / per_second);
                let begin = lasting.mul_f64(WARM_UP);
                Span::Time { begin, end: begin + lasting }
            }
            Self::OverCaches(times) => {
                let lasting = Duration::from_secs_f64(measured as f64 / agent_sessions::per_second(*times));
                Span::Time { begin: RISING, end: RISING + lasting }
            }
            Self::InTurn(_) => Span::Count { before: 0, all: measured },
            Self::Closed(_) => Span::Count { before: measured / 2, all: measured / 2 + measured },
        }
    }

    /// The clients of a run, and when each sends its first request.
    pub(super) fn clients(&self, span: Span, seed: u64) -> (SourceClients, Vec<Duration>) {
        let arrivals = match (self, span) {
            (Self::Open { workload, per_second }, Span::Time { end, .. }) => {
                workload.arrivals(*per_second, *per_second, end, seed)
            }
            (Self::OverCaches(times), Span::Time { end, .. }) => {
                let [at_start, per_second] = [AT_START, *times].map(agent_sessions::per_second);
                Workload::AgentSessions.arrivals(at_start, per_second, end, seed)
            }
            (Self::InTurn(conversations), Span::Count { all, .. }) => {
                in_turn::arrivals(*conversations, all, seed)
            }
            (Self::Closed(closed), _) => {
                let conversations = closed.conversations(seed);
                let in_progress = vec![None; closed.clients];
                let clients = SourceClients::Closed { conversations, in_progress, pause: closed.pause };
                return (clients, vec![Duration::ZERO; closed.clients]);
            }
            _ => unreachable!("a source has the span that it makes"),
        };
        let times = arrivals.iter().map(|arrival| arrival.at).collect();
        let sessions = arrivals.into_iter().map(|arrival| SessionState { arrival, next: 0 });
        (SourceClients::Sessions(sessions.collect()), times)
    }
}

/// The cache that sessions of agents need at the start, as a part of all: as much as is served well.
const AT_START: f64 = 0.8;

/// Time in which the need for cache rises. It is longer than a session takes when none waits.
const RISING: Duration = Duration::from_secs(900);

/// Requests before those that are measured, as a part of these: they fill the caches.
const WARM_UP: f64 = 0.5;

/// Clients of a source.
#[derive(Debug)]
pub(super) enum SourceClients {
    Sessions(Vec<SessionState>),
    Closed { conversations: StudyConversations, in_progress: Vec<Option<Conversation>>, pause: Duration },
}

#[derive(Debug)]
pub(super) struct SessionState {
    arrival: Arrival,
    /// The next turn.
    next: usize,
}

impl Clients for SourceClients {
    fn next_request(&mut self, client: usize) -> Arc<SimulatedRequest> {
        match self {
            Self::Sessions(sessions) => {
                let state = &mut sessions[client];
                state.next += 1;
                Arc::clone(&state.arrival.session.turns[state.next - 1].request)
            }
            Self::Closed { conversations, in_progress, .. } => {
                let (conversation, request) = conversations.take();
                in_progress[client] = Some(conversation);
                request
            }
        }
    }

    fn ended(&mut self, client: usize) -> Option<Duration> {
        match self {
            Self::Sessions(sessions) => {
                let SessionState { arrival, next } = &sessions[client];
                arrival.session.turns.get(*next).map(|turn| turn.pause)
            }
            Self::Closed { conversations, in_progress, pause } => {
                conversations.put_back(in_progress[client].take()?);
                Some(*pause)
            }
        }
    }
}
