//! The part of a decision that needs neither loads nor the state of plugins.
//!
//! Where those are locked, it is done before: hashing a prompt is a large part of a decision.

use core::time::Duration;

use super::{Pipeline, Slot};
use crate::few::Few;
use crate::input::View;
use crate::input::candidates;
use crate::input::cycle::NO_READING;
use crate::plugin::PrefixProducer;
use crate::request::Request;
use crate::request::prompt::{BlockHashes, block_hashes};

/// What follows from a request and the readings alone.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The endpoints that the request may go to.
    pub(super) candidates: Vec<usize>,
    /// The prompt's blocks for each prefix producer; empty without a prompt.
    pub(super) prompts: Few<PromptHashes>,
}

/// The prompt's blocks as one prefix producer cuts them.
#[derive(Clone, Debug)]
pub(super) struct PromptHashes {
    /// The producer's key.
    pub(super) producer: u64,
    /// Tokens in a block.
    pub(super) block_size: u32,
    pub(super) hashes: BlockHashes,
}

impl Prepared {
    /// The prompt's blocks by the prefix producer of this key.
    pub(super) fn hashes_of(&self, producer: u64) -> Option<&BlockHashes> {
        self.prompts.iter().find(|prompt| prompt.producer == producer).map(|prompt| &prompt.hashes)
    }
}

impl Pipeline {
    /// Prepares the decision for a request with a body. Of the view, only endpoints and readings count.
    pub fn prepare(&self, request: &Request<'_>, view: &View<'_>, now: Duration) -> Prepared {
        let candidates = candidates(request, view);
        let readings = self.usable_readings(view, now);
        let first = candidates.first().and_then(|&first| readings.get(first)).unwrap_or(&NO_READING);
        let hash = |slot: &Slot<dyn PrefixProducer>| {
            let block_size = slot.plugin.block_size(first);
            let max_blocks = slot.plugin.max_blocks(block_size);
            let hashes = block_hashes(
                request.prompt?,
                request.model,
                request.cache_salt,
                block_size as usize,
                max_blocks,
            );
            Some(PromptHashes { producer: slot.key, block_size, hashes })
        };
        Prepared { prompts: self.prefix_producers.iter().filter_map(hash).collect(), candidates }
    }
}
