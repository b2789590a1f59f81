//! The requests of a round, as real ones are sent.

use crate::load::schedule::moments;
use crate::load::workload::Workload;
use endpoint_picker_model_server::BatchRequest;
use std::time::Duration;

/// The requests of a round in their phases.
#[derive(Debug)]
pub(super) struct Script {
    /// Those that fill the caches, and those that are measured.
    pub(super) phases: [Vec<ScriptedRequest>; 2],
    /// Determines the proxy of each request.
    pub(super) seed: u64,
}

#[derive(Debug)]
pub(super) struct ScriptedRequest {
    /// From the beginning of its phase.
    pub(super) at: Duration,
    pub(super) body: String,
    /// Its work for a server.
    pub(super) work: BatchRequest,
}

impl Script {
    pub(super) fn new(workload: Workload, per_second: f64, phases: [Duration; 2], seed: u64) -> Self {
        let mut requests = workload.requests(seed);
        let phases = phases.map(|lasting| {
            let request = |at| {
                let chat = requests.next();
                ScriptedRequest { at, body: chat.body().to_string(), work: chat.batch_request() }
            };
            moments(per_second, lasting, seed).into_iter().map(request).collect()
        });
        Self { phases, seed }
    }
}
