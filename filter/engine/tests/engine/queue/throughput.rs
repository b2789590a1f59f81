//! Whether servers stand idle while requests wait: in front of servers that saturate in 200 ms, by readings
//! that are 50 ms old. Time is simulated.

use core::time::Duration;
use std::collections::VecDeque;

use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_wire::v1;
use serde_json::json;

use super::{Queueing, queueing_policy, resumes};
use crate::fixture::{Fixture, Request, START, address, topology};

const SERVERS: usize = 4;
/// Requests that a server works on at once, and how many milliseconds each takes: 50 requests per second.
const PLACES: usize = 4;
const SERVICE: u64 = 80;
/// Requests per millisecond, 1.5 times those that the servers complete: after 200 ms five wait at each,
/// enough to saturate it.
const ARRIVALS: f64 = 0.3;
const LASTS: u64 = 8_000;
/// Between two readings of a server, and between two snapshots, in milliseconds.
const SCRAPES: u64 = 50;
const SNAPSHOTS: u64 = 20;

#[derive(Default)]
struct Server {
    waiting: VecDeque<Request>,
    /// Each with the millisecond of its end.
    running: Vec<(u64, Request)>,
}

/// The part of the servers' places that is in use, with these scorers and their weights.
fn use_with(scorers: &[(&str, f64)]) -> f64 {
    let mut policy = queueing_policy(v1::FlowControl::default());
    let picker = policy.picker_config.as_mut().unwrap();
    for (name, _) in scorers {
        if !picker.plugins.iter().any(|plugin| plugin.name == *name) {
            let (name, parameters) = ((*name).to_owned(), "{}".to_owned());
            picker.plugins.push(v1::Plugin { name: name.clone(), r#type: name, parameters });
        }
    }
    let of_profile = |name: &str, weight| v1::PluginRef { name: name.to_owned(), weight };
    let scorers = scorers.iter().map(|(name, weight)| of_profile(name, Some(*weight)));
    picker.profiles[0].plugins = scorers.chain([of_profile("max-score-picker", None)]).collect();
    let mut fixture = Fixture::without_snapshot(&json!({}));
    fixture.adopt(topology(&[1, 2, 3, 4], policy), &[0; SERVERS]);
    let mut queueing = Queueing { fixture, now: START };

    let mut servers: [Server; SERVERS] = Default::default();
    let mut readings = [0; SERVERS];
    let mut queue = Vec::new();
    let mut rng = SplitMix64::new(1);
    let mut used = 0;
    for now in 0..LASTS {
        queueing.now = START + Duration::from_millis(now);
        for (place, server) in servers.iter_mut().enumerate() {
            server.work(now, &mut queueing);
            used += server.running.len();
            if (now + place as u64 * SCRAPES / SERVERS as u64).is_multiple_of(SCRAPES) {
                readings[place] = server.waiting.len() as u64;
            }
        }
        if now.is_multiple_of(SNAPSHOTS) {
            queueing.read(&readings);
        }
        queueing.tick();
        if rng.unit() < ARRIVALS {
            match queueing.post(&[]) {
                (request, Flow::Continue) => send(&mut servers, request),
                (request, Flow::Wait) => queue.push(request),
                (_, flow) => panic!("{flow:?}"),
            }
        }
        for mut request in queue.extract_if(.., |request| resumes(request) > 0) {
            assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
            send(&mut servers, request);
        }
    }
    used as f64 / (LASTS as f64 * (SERVERS * PLACES) as f64)
}

impl Server {
    fn work(&mut self, now: u64, queueing: &mut Queueing) {
        for (_, mut request) in self.running.extract_if(.., |(end, _)| *end <= now) {
            queueing.end(&mut request);
        }
        let free = (PLACES - self.running.len()).min(self.waiting.len());
        self.running.extend(self.waiting.drain(..free).map(|request| (now + SERVICE, request)));
    }
}

fn send(servers: &mut [Server], request: Request) {
    let destination = request.destination().unwrap();
    let place = (1..).zip(&*servers).position(|(number, _)| address(number) == destination).unwrap();
    servers[place].waiting.push_back(request);
}

#[test]
fn no_server_stands_idle_where_requests_in_flight_choose() {
    let used = use_with(&[("active-request-scorer", 1.0)]);
    assert!(used >= 0.98, "{used}");
}

/// All requests between two readings go to the server that was best, and the mean over the servers counts as
/// saturated until it has worked off its queue.
#[test]
fn servers_stand_idle_where_readings_choose() {
    let alone = use_with(&[("queue-scorer", 2.0)]);
    let beside = use_with(&[("active-request-scorer", 4.0), ("queue-scorer", 2.0)]);
    assert!(alone < 0.8 && alone < beside && beside < 0.98, "{alone} {beside}");
}
