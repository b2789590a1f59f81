//! The number of requests that a fleet can serve in a second, found by the simulation.

use super::sessions::Sessions;
use super::workloads::Workload;
use metrics_agent_replay::simulation::events::Events;
use metrics_agent_replay::simulation::fleet::{Fleet, RunningFleet};
use metrics_agent_replay::simulation::sessions::Session;
use std::collections::VecDeque;
use std::time::Duration;

/// Requests at a server, in the mean, one after another. With few, steps are short and read little at once;
/// with many, the cache has no room for prompts that no request uses.
const IN_FLIGHT: [usize; 3] = [24, 64, 160];

/// Requests that pass before and while counting, for each that is in flight, and at least.
const WARM_UP: usize = 2;
const COUNTED: usize = 3;
const LEAST: usize = 1_500;

/// Requests per second: the most of closed loops with different numbers of requests in flight. A request
/// follows as soon as another has ended. It goes where it ends first by the true contents of the caches and
/// the true work of all others.
///
/// As many sessions rest as their pauses ask for at this rate, which is why each loop runs twice: what they
/// left in the caches has to stay there meanwhile.
pub fn of(fleet: &Fleet, sessions: &dyn Fn() -> Box<dyn Sessions>) -> f64 {
    let places = fleet.times.max_running;
    let pause = mean_pause(&mut *sessions());
    let in_flight = IN_FLIGHT.into_iter().filter(|&each| each <= places * 2);
    let per_second = in_flight.map(|each| {
        let first = ClosedLoop::new(fleet, sessions(), each).per_second(0);
        if pause == 0.0 {
            first
        } else {
            ClosedLoop::new(fleet, sessions(), each).per_second(whole(first * pause))
        }
    });
    per_second.fold(0.0, f64::max)
}

/// The capacity of a workload's servers.
pub fn of_workload(workload: Workload, seed: u64) -> f64 {
    of(&workload.fleet(), &|| workload.sessions(seed))
}

/// Mean seconds before a request in which its session rests.
fn mean_pause(sessions: &mut dyn Sessions) -> f64 {
    const SAMPLE: usize = 400;
    let turns: Vec<_> = (0..SAMPLE).flat_map(|_| sessions.draw().turns).collect();
    let pauses: Duration = turns.iter().map(|turn| turn.pause).sum();
    pauses.as_secs_f64() / turns.len() as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of sessions")]
fn whole(number: f64) -> usize {
    number.round() as usize
}

struct ClosedLoop {
    sessions: Box<dyn Sessions>,
    fleet: RunningFleet,
    events: Events<usize>,
    /// Sessions that have a next turn: the one with the oldest response comes first.
    resting: VecDeque<(Session, usize)>,
    /// Sessions of the requests in flight, by number, with their server and its work for them.
    in_flight: Vec<Option<(Session, usize, usize, Duration)>>,
    /// Work at each server.
    work: Vec<Duration>,
    slowness: Vec<f64>,
    /// Time that a token of a response takes a server.
    token: Duration,
    requests: usize,
    ended: usize,
}

impl ClosedLoop {
    fn new(fleet: &Fleet, sessions: Box<dyn Sessions>, each: usize) -> Self {
        let kinds = fleet.servers.iter();
        let each_token = u32::try_from(each.min(fleet.times.max_running)).unwrap_or(u32::MAX);
        let token = fleet.times.step / each_token + fleet.times.step_per_sequence;
        Self {
            sessions,
            slowness: kinds.map(|kind| kind.slowness).collect(),
            work: vec![Duration::ZERO; fleet.servers.len()],
            requests: each * fleet.servers.len(),
            // A slow spell is no property of the fleet.
            fleet: RunningFleet::new(fleet, Duration::MAX / 2),
            events: Events::new(Duration::ZERO),
            resting: VecDeque::new(),
            in_flight: Vec::new(),
            token,
            ended: 0,
        }
    }

    /// Requests per second while this many sessions rest.
    fn per_second(mut self, resting: usize) -> f64 {
        // Each session is at another turn.
        for _ in 0..self.requests + resting {
            let session = self.sessions.draw();
            let next = self.resting.len() % session.turns.len();
            self.resting.push_back((session, next));
        }
        for _ in 0..self.requests {
            self.send();
        }
        let warm_up = (WARM_UP * (self.requests + resting)).max(LEAST);
        let counted = (COUNTED * self.requests).max(LEAST);
        let mut counting_since = Duration::ZERO;
        while self.ended < warm_up + counted {
            let Some(server) = self.events.pop() else { break };
            let before = self.ended;
            self.end_step(server);
            if before < warm_up && self.ended >= warm_up {
                counting_since = self.events.now();
            }
        }
        (self.ended - warm_up) as f64 / self.events.now().saturating_sub(counting_since).as_secs_f64()
    }

    fn send(&mut self) {
        let (session, turn) = self.resting.pop_front().unwrap_or_else(|| (self.sessions.draw(), 0));
        let work = session.turns[turn].request.work().clone();
        let now = self.events.now();
        let answer = self.token * u32::try_from(work.answer_tokens()).unwrap_or(u32::MAX);
        let time =
            |server: usize| (self.fleet.time_to_read(server, &work) + answer).mul_f64(self.slowness[server]);
        let best = (0..self.fleet.len()).map(|server| (self.work[server] + time(server), server)).min();
        let (total, server) = best.unwrap();
        let added = total.saturating_sub(self.work[server]);
        self.work[server] = total;
        let number = self.in_flight.len();
        self.in_flight.push(Some((session, turn + 1, server, added)));
        if let Some(end) = self.fleet.add(server, work, number, now) {
            self.events.plan(end.saturating_sub(now), server);
        }
    }

    fn end_step(&mut self, server: usize) {
        let now = self.events.now();
        let mut ended = Vec::new();
        let next = self
            .fleet
            .end_step(server, now, |number, progress| ended.extend(progress.is_all.then_some(number)));
        if let Some(end) = next {
            self.events.plan(end.saturating_sub(now), server);
        }
        for number in ended {
            let (session, next, server, work) = self.in_flight[number].take().unwrap();
            self.work[server] = self.work[server].saturating_sub(work);
            self.ended += 1;
            let next = if next < session.turns.len() { (session, next) } else { (self.sessions.draw(), 0) };
            self.resting.push_back(next);
            self.send();
        }
    }
}
