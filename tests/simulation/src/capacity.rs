//! The maximum rate of requests that servers can serve, computed from the model of their service times.
//!
//! The servers are always full, and each request goes where it ends first. The picker is omniscient: it knows
//! the caches of all servers and the length of each response. Time is simulated.

use crate::workload::Workload;
use metrics_agent_server_model::{Batch, BatchRequest, ServiceTimes};
use std::time::Duration;

/// Requests that pass before and while counting.
const WARM_UP: usize = 1_000;
const COUNTED: usize = 3_000;

/// Requests per second of this many servers.
pub fn of(workload: Workload, servers: usize, seed: u64) -> f64 {
    let times = workload.service_times();
    let mut fleet: Vec<Server> = (0..servers).map(|_| Server::new(times)).collect();
    let mut requests = workload.requests(seed);
    // A quarter more than the batches take, so that none is short of requests and queues are short.
    for _ in 0..servers * times.max_running * 5 / 4 {
        route(&mut fleet, requests.draw().batch_request(), times);
    }
    let mut ended = 0;
    let mut counting_since = Duration::ZERO;
    while ended < WARM_UP + COUNTED {
        let next = fleet.iter_mut().filter_map(Server::step_end).min().unwrap();
        let mut now_ended = 0;
        for server in &mut fleet {
            if server.end == Some(next) {
                now_ended += server.end_step();
            }
        }
        for _ in 0..now_ended {
            ended += 1;
            if ended == WARM_UP {
                counting_since = next;
            }
            for server in &mut fleet {
                server.now = next;
            }
            route(&mut fleet, requests.draw().batch_request(), times);
        }
    }
    let now = fleet.iter().map(|server| server.now).max().unwrap_or_default();
    COUNTED as f64 / now.saturating_sub(counting_since).as_secs_f64()
}

struct Server {
    batch: Batch<Duration>,
    now: Duration,
    /// End of the step in flight.
    end: Option<Duration>,
    /// Work in its queue and batch.
    backlog: Duration,
}

impl Server {
    fn new(times: ServiceTimes) -> Self {
        Self { batch: Batch::new(times), now: Duration::ZERO, end: None, backlog: Duration::ZERO }
    }

    /// The end of its step; begins one if it has work.
    fn step_end(&mut self) -> Option<Duration> {
        if self.end.is_none() {
            self.end = self.batch.begin_step().map(|step| self.now + step);
        }
        self.end
    }

    /// Ends the step; returns how many requests ended with it.
    fn end_step(&mut self) -> usize {
        self.now = self.end.take().unwrap_or(self.now);
        let mut ended = 0;
        let backlog = &mut self.backlog;
        self.batch.end_step(|work, progress| {
            if progress.is_all {
                *backlog = backlog.saturating_sub(*work);
                ended += 1;
            }
            true
        });
        ended
    }
}

fn route(fleet: &mut [Server], request: BatchRequest, times: ServiceTimes) {
    // A full batch shares the fixed part of its steps.
    let token = times.step / u32::try_from(times.max_running).unwrap_or(u32::MAX) + times.step_per_sequence;
    let answer = token * u32::try_from(request.answer_tokens()).unwrap_or(u32::MAX);
    let with = |server: &Server| server.backlog + server.batch.time_to_read(&request) + answer;
    let best = fleet.iter_mut().min_by_key(|server| with(server)).unwrap();
    let work = best.batch.time_to_read(&request) + answer;
    best.backlog += work;
    best.batch.add(request, work);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_servers_answer_about_twice_the_requests() {
        let [few, many] = [4, 8].map(|servers| of(Workload::Adapters, servers, 1));
        // More servers also have more places for the same adapters.
        assert!((1.8..3.0).contains(&(many / few)), "{few} and {many} requests a second");
    }
}
