//! The true contents of the servers' caches as the index of prompts, for the simulation of tests.

use super::engine::{EnginePicker, write_body};
use crate::simulation::fleet::RunningFleet;
use crate::simulation::request::{MODEL, SimulatedRequest};
use endpoint_picker::headers::Headers;
use endpoint_picker::plugin::Instance;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::request::prompt::block_hashes;
use endpoint_picker::state::prefix::PrefixIndex;

/// Tokens in a block of the index of prompts.
const INDEX_BLOCK: usize = 64;

impl EnginePicker {
    /// Replaces the index of prompts by the part of this prompt that each server has cached.
    pub(super) fn index_contents(&mut self, request: &SimulatedRequest, fleet: &RunningFleet) {
        let mut body = Vec::new();
        write_body(request, &mut body);
        let pipeline = &self.topology.pipeline;
        let view = self.pool.view();
        let options = view.body_options(Headers::default());
        let Ok(body) = Body::read_bytes(&body, Api::Completions, &options) else { return };
        let model = request.adapter.as_deref().unwrap_or(MODEL);
        let keys = pipeline.plugins().iter().map(Instance::key);
        let ledger = self.pool.store_mut().peer_mut();
        let Some(key) =
            keys.into_iter().find(|key| ledger.ledger().states().of::<PrefixIndex>(*key).is_some())
        else {
            return;
        };
        let hashes = block_hashes(&body.prompt, model, None, INDEX_BLOCK, usize::MAX);
        let mut index = PrefixIndex::default();
        for server in 0..fleet.len() {
            let blocks = fleet.cached_tokens(server, request.work()) / INDEX_BLOCK;
            let cached = hashes.all().get(..blocks).unwrap_or(hashes.all());
            if !cached.is_empty() {
                index.add(server, cached, usize::MAX);
            }
        }
        ledger.replace_state(key, Box::new(index));
    }
}
