//! A pool whose agent is the test.

use core::ops::Deref;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use endpoint_picker_engine::testing;
use endpoint_picker_wire::models::Models;
use endpoint_picker_wire::prefixes::CachedPrefixes;
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::{Message, v1};
use serde_json::{Value, json};

use self::server::{Reply, Request as AgentRequest, Server};
use crate::envoy::Config;

#[allow(dead_code, reason = "the tests of the way to the agent use the rest")]
#[path = "../agent/server.rs"]
mod server;

/// The time by which the module does what other threads have to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The right to be the process's only test: the oldest configuration of a process writes the metrics of all.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of the endpoint of this number, from 1.
pub(crate) fn address(endpoint: usize) -> String {
    testing::address(u16::try_from(endpoint).unwrap()).to_string()
}

/// A policy that picks the endpoint with the fewest waiting requests. `m` is served by `canary`.
pub(crate) fn fewest_waiting() -> v1::Policy {
    let rule = v1::RewriteRule {
        resource: "rule".to_owned(),
        models: vec!["m".to_owned()],
        targets: vec![v1::Target { model: "canary".to_owned(), weight: None }],
    };
    v1::Policy { rewrite_rules: vec![rule], ..testing::fewest_waiting() }
}

/// A snapshot with this many waiting requests at each endpoint.
pub(crate) fn snapshot(pool: &str, policy: v1::Policy, waiting: &[u64]) -> Vec<u8> {
    snapshot_from(pool, policy, 1, waiting)
}

/// A snapshot of the endpoints from this number on.
pub(crate) fn snapshot_from(pool: &str, policy: v1::Policy, first: usize, waiting: &[u64]) -> Vec<u8> {
    let reading =
        |&waiting: &u64| v1::Reading { running: Some(3), kv_usage: Some(0.2), ..testing::reading(waiting) };
    let numbers = (first..first + waiting.len()).map(|number| u16::try_from(number).unwrap());
    let snapshot = v1::Snapshot {
        // Another one for other endpoints.
        topology_version: u64::try_from(first + waiting.len()).unwrap(),
        topology: Some(testing::topology(pool, numbers, policy)),
        ..testing::snapshot(waiting.iter().map(reading))
    };
    snapshot.encode_to_vec()
}

/// The agent of one pool.
pub(crate) struct Agent {
    server: Server,
    state: Arc<State>,
}

/// The snapshot that the agent has, and the requests that it has got.
#[derive(Default)]
struct State {
    snapshot: Mutex<Vec<u8>>,
    /// The paths of polls.
    polls: Mutex<Vec<String>>,
    reports: Mutex<Vec<Report>>,
    /// Models for body-based routing, and whether the module has them.
    models: Mutex<Models>,
    has_models: AtomicBool,
    /// Whether the module has asked for changes of other proxies.
    has_refused_changes: AtomicBool,
    /// Cached prefixes, and whether the module has them.
    prefixes: Mutex<Option<CachedPrefixes>>,
    has_prefixes: AtomicBool,
}

impl Agent {
    /// An agent before its first snapshot. It does not share changes.
    pub(crate) fn start() -> Self {
        let state = Arc::<State>::default();
        let server = {
            let state = Arc::clone(&state);
            Server::start(move |request| state.reply(request))
        };
        Self { server, state }
    }

    /// The way to this agent, as in a configuration.
    pub(crate) fn access(&self) -> Value {
        json!({"addresses": [format!("http://{}", self.server.address())]})
    }

    /// Has the next polls get this snapshot.
    pub(crate) fn publish(&self, snapshot: Vec<u8>) {
        *self.state.snapshot.lock().unwrap() = snapshot;
    }

    /// Has the next polls for models get these.
    pub(crate) fn publish_models(&self, models: &Models) {
        *self.state.models.lock().unwrap() = models.clone();
    }

    /// Waits until the module polls for newer models than the agent's.
    pub(crate) fn wait_until_models_taken(&self) {
        wait_until(&self.state.has_models, "next version of models");
    }

    /// Publishes cached prefixes, and waits until the module has them: it polls with their version.
    pub(crate) fn publish_prefixes(&self, prefixes: CachedPrefixes) {
        self.state.has_prefixes.store(false, Ordering::SeqCst);
        *self.state.prefixes.lock().unwrap() = Some(prefixes);
        wait_until(&self.state.has_prefixes, "next version of cached prefixes");
    }

    /// The number of polls.
    pub(crate) fn polls(&self) -> usize {
        self.state.polls.lock().unwrap().len()
    }

    /// Waits until the module polls for a newer snapshot than the agent's: then it decides by the agent's.
    pub(crate) fn wait_until_taken(&self) {
        let start = Instant::now();
        let version = topology_parameter(&self.state.snapshot.lock().unwrap());
        while !self.state.polls.lock().unwrap().iter().any(|poll| poll.contains(&version)) {
            assert!(start.elapsed() < DEADLINE, "no poll with {version} within {DEADLINE:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the module has asked whether changes are shared: it is about to learn that they are not.
    #[allow(dead_code, reason = "the test of the budget uses it")]
    pub(crate) fn wait_until_changes_refused(&self) {
        wait_until(&self.state.has_refused_changes, "shared changes");
    }

    /// Takes the reports since the last call.
    pub(crate) fn take_reports(&self) -> Vec<Report> {
        core::mem::take(&mut *self.state.reports.lock().unwrap())
    }
}

fn wait_until(has: &AtomicBool, subject: &str) {
    let start = Instant::now();
    while !has.load(Ordering::SeqCst) {
        assert!(start.elapsed() < DEADLINE, "no request for the {subject} within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The parameter by which a poll names the endpoints of this snapshot.
fn topology_parameter(snapshot: &[u8]) -> String {
    format!("&topology={}&", v1::Snapshot::decode(snapshot).unwrap().topology_version)
}

impl State {
    fn reply(&self, request: &AgentRequest) -> Reply {
        if request.path.ends_with("/changes") {
            self.has_refused_changes.store(true, Ordering::SeqCst);
            return Reply::Answer(404, vec![]);
        }
        if request.is_report() {
            self.reports.lock().unwrap().push(Report::decode(request.body.as_slice()).unwrap());
            return Reply::Answer(204, vec![]);
        }
        if request.path.starts_with("/v1/models?") {
            let models = self.models.lock().unwrap();
            if request.path.ends_with(&format!("?version={}", models.version)) {
                self.has_models.store(models.format > 0, Ordering::SeqCst);
                return Reply::Answer(204, vec![]);
            }
            return Reply::Answer(200, models.encode_to_vec());
        }
        if request.path.contains("/cached-prefixes?") {
            let prefixes = self.prefixes.lock().unwrap();
            let Some(prefixes) = &*prefixes else { return Reply::Answer(404, vec![]) };
            if request.path.ends_with(&format!("&log={}&version={}", prefixes.log, prefixes.version)) {
                self.has_prefixes.store(true, Ordering::SeqCst);
                return Reply::Answer(204, vec![]);
            }
            return Reply::Answer(200, prefixes.encode_to_vec());
        }
        if request.path.ends_with("/records") {
            return Reply::Answer(204, vec![]);
        }
        assert!(request.path.contains("/snapshot"), "{request:?}");
        let snapshot = self.snapshot.lock().unwrap().clone();
        self.polls.lock().unwrap().push(request.path.clone());
        if snapshot.is_empty() || request.path.contains(&topology_parameter(&snapshot)) {
            return Reply::Answer(204, vec![]);
        }
        Reply::Answer(200, snapshot)
    }
}

/// A configuration of a pool, and the agent that it polls.
pub(crate) struct Pool {
    config: Config,
    pub(crate) agent: Arc<Agent>,
}

impl Deref for Pool {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

/// A configuration of a pool before its first snapshot. `fields` is added to it.
pub(crate) fn unready(pool: &str, fields: &Value) -> Pool {
    with_agent(pool, fields, &Arc::new(Agent::start()))
}

/// A configuration of a pool with the agent of another one.
pub(crate) fn with_agent(pool: &str, fields: &Value, agent: &Arc<Agent>) -> Pool {
    let mut config = json!({"pool": pool, "agent": agent.access()});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Pool { config: Config::new(&config).unwrap(), agent: Arc::clone(agent) }
}

/// A pool with a policy, and this many waiting requests at its endpoints.
pub(crate) fn with_policy(pool: &str, fields: &Value, policy: v1::Policy, waiting: &[u64]) -> Pool {
    let config = unready(pool, fields);
    config.agent.publish(snapshot(pool, policy, waiting));
    config.agent.wait_until_taken();
    config
}

/// A pool of three endpoints, of which the second is picked.
pub(crate) fn ready(pool: &str, fields: &Value) -> Pool {
    with_policy(pool, fields, fewest_waiting(), &[10, 0, 20])
}
