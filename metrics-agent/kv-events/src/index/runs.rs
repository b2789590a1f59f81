//! The prefixes that a cache has with all their blocks.

use std::collections::HashMap;

use super::keyed::KeyedPrompt;
use super::nodes::{BlockNodes, NodeKey};
use crate::event::StorageTier;
use crate::prefixes::{Prefixes, ServerNumber};

/// The blocks with keys of a cache.
#[derive(Debug)]
pub(super) struct Runs {
    /// The server that has the cache.
    server: ServerNumber,
    runs: HashMap<NodeKey, RunBlock>,
}

/// A block of a cache, and the blocks before it in its prefix.
#[derive(Clone, Copy, Debug, Default)]
struct RunBlock {
    /// Under how many names the cache has the block in each tier.
    names: [u32; 3],
    /// The slowest tier of the blocks from the beginning of the prefix to this block; `None`: the cache lacks
    /// one of them.
    tier: Option<StorageTier>,
}

impl RunBlock {
    /// The fastest tier in which the cache has the block.
    fn own_tier(&self) -> Option<StorageTier> {
        StorageTier::ALL.into_iter().find(|tier| self.names[*tier as usize] > 0)
    }
}

impl Runs {
    /// The runs of a cache without blocks.
    pub(super) fn new(server: ServerNumber) -> Self {
        Self { server, runs: HashMap::new() }
    }

    /// The server that has the cache.
    pub(super) fn server(&self) -> ServerNumber {
        self.server
    }

    /// The cache has a block in a tier under one more name.
    pub(super) fn hold(
        &mut self,
        node: NodeKey,
        tier: StorageTier,
        nodes: &BlockNodes,
        prefixes: &mut Prefixes,
    ) {
        if nodes.keyed(node).is_some() {
            self.runs.entry(node).or_default().names[tier as usize] += 1;
            self.refresh(node, nodes, prefixes);
        }
    }

    /// The cache has a block in a tier under one name less.
    pub(super) fn release(
        &mut self,
        node: NodeKey,
        tier: StorageTier,
        nodes: &BlockNodes,
        prefixes: &mut Prefixes,
    ) {
        let Some(run) = self.runs.get_mut(&node) else { return };
        run.names[tier as usize] -= 1;
        self.refresh(node, nodes, prefixes);
    }

    /// Follows a change of a block up to the ends of its prefixes.
    fn refresh(&mut self, node: NodeKey, nodes: &BlockNodes, prefixes: &mut Prefixes) {
        let mut changed = vec![node];
        while let Some(key) = changed.pop() {
            let (Some(node), Some(run)) = (nodes.get(key), self.runs.get(&key).copied()) else { continue };
            let Some(keyed) = &node.keyed else { continue };
            let own = run.own_tier();
            let before =
                if keyed.is_first { own } else { self.runs.get(&node.parent).and_then(|run| run.tier) };
            let tier = own.zip(before).map(|(own, before)| own.max(before));
            if own.is_none() {
                self.runs.remove(&key);
            } else if let Some(run) = self.runs.get_mut(&key) {
                run.tier = tier;
            }
            if tier == run.tier {
                continue;
            }
            match &keyed.prompt {
                KeyedPrompt::End(ends) => {
                    ends.prefixes().for_each(|prefix| prefixes.change(self.server, prefix, run.tier, tier));
                }
                KeyedPrompt::Within(_) => {
                    changed.extend(nodes.continuations(key).filter(|next| self.runs.contains_key(next)));
                }
            }
        }
    }

    /// Takes all prefixes from the cache.
    pub(super) fn release_all(&mut self, nodes: &BlockNodes, prefixes: &mut Prefixes) {
        for (key, run) in core::mem::take(&mut self.runs) {
            if run.tier.is_some()
                && let Some(KeyedPrompt::End(ends)) = nodes.keyed(key).map(|keyed| &keyed.prompt)
            {
                ends.prefixes().for_each(|prefix| prefixes.change(self.server, prefix, run.tier, None));
            }
        }
    }
}
