//! The search for a prompt in the index.

use super::CachedPrefixes;
use super::nodes::Slot;
use crate::request::cached_prompt::{CachedPrompt, CachedRun, PromptKind, Ranks, Tier};
use crate::state::prefix::key;

/// Maximum number of keys that are looked up for the prompts of one request. A node has one length of
/// children almost always; a root has some hundred.
const MAX_LOOKUPS: usize = 1 << 13;

/// Maximum number of bytes of which keys are made for the prompts of one request: some milliseconds. Almost
/// always they are the bytes of the prompts, and some hundred blocks that begin at a root.
const MAX_HASHED: usize = 1 << 25;

/// Maximum number of times that a prompt is followed over children of several lengths at once. The same text
/// may be cut into blocks in two ways: as a model has generated it, and as a tokenizer has read it.
const MAX_FORKS: usize = 16;

/// The way of one prompt down the tree.
struct Walk<'a> {
    index: &'a CachedPrefixes,
    /// The keys and their bytes that may still be made.
    lookups: usize,
    hashed: usize,
    forks: usize,
    /// The longest run of each endpoint, by its place in the index.
    longest: Vec<Run>,
    lengths: Vec<usize>,
}

/// The run of one endpoint on one way.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Its nodes. The run is open while it has all nodes of the way.
    nodes: u32,
    bytes: [u64; Tier::ALL.len()],
    tokens: u64,
    /// The ranks that have the first nodes of the run, the number of these nodes, and their bytes.
    ranks: Ranks,
    ranked_nodes: u32,
    ranked: u64,
}

impl CachedPrefixes {
    /// Finds prompts of a kind, given by their bytes. `root` is the key of the model and the cache salt, of
    /// this kind.
    pub fn find<'p>(
        &self,
        root: u64,
        kind: PromptKind,
        prompts: impl IntoIterator<Item = &'p [u8]>,
    ) -> CachedPrompt {
        let mut found = CachedPrompt { kind, ..CachedPrompt::default() };
        let known = self.endpoints.iter().enumerate();
        let known = known
            .filter_map(|(place, events)| Some((place, events.filter(|events| events.is_complete(kind))?)));
        let (places, runs): (Vec<usize>, Vec<CachedRun>) = known
            .map(|(place, events)| (place, CachedRun { endpoint: events.endpoint, ..CachedRun::default() }))
            .unzip();
        found.runs = runs;
        let root = self.nodes.find(root);
        let none = vec![Run::default(); self.endpoints.len()];
        let mut walk = Walk {
            index: self,
            lookups: MAX_LOOKUPS,
            hashed: MAX_HASHED,
            forks: 0,
            longest: none.clone(),
            lengths: Vec::new(),
        };
        for (number, prompt) in prompts.into_iter().enumerate() {
            if number > 0 {
                found.runs.iter_mut().for_each(|run| run.ranks = Ranks::default());
            }
            found.bytes += prompt.len() as u64;
            let Some(root) = root else { continue };
            let children = walk.children(root, prompt);
            if children.is_empty() {
                continue;
            }
            walk.forks = MAX_FORKS;
            walk.longest.fill(Run::default());
            walk.follow(children, prompt, none.clone(), 0);
            for (&place, total) in places.iter().zip(&mut found.runs) {
                let Some(run) = walk.longest.get(place) else { continue };
                total.tokens += run.tokens;
                if number == 0 {
                    (total.ranks, total.ranked) = (run.ranks, run.ranked);
                }
                total.bytes.iter_mut().zip(run.bytes).for_each(|(total, bytes)| *total += bytes);
            }
        }
        found
    }
}

impl Walk<'_> {
    /// Follows `prompt` from the [children](Self::children) of the last of `nodes`, as far as the runs that
    /// are open there go.
    fn follow(
        &mut self,
        mut children: crate::Few<(Slot, usize)>,
        mut prompt: &[u8],
        mut runs: Vec<Run>,
        mut nodes: u32,
    ) {
        while let Some((child, length)) = children.pop() {
            for (other, length) in children {
                if self.forks == 0 {
                    break;
                }
                self.forks -= 1;
                let mut runs = runs.clone();
                if self.extend(&mut runs, other, length, nodes) {
                    let rest = prompt.get(length..).unwrap_or_default();
                    let children = self.children(other, rest);
                    self.follow(children, rest, runs, nodes + 1);
                } else {
                    self.keep(&runs);
                }
            }
            if !self.extend(&mut runs, child, length, nodes) {
                break;
            }
            (prompt, nodes) = (prompt.get(length..).unwrap_or_default(), nodes + 1);
            children = self.children(child, prompt);
        }
        self.keep(&runs);
    }

    /// The children of a node with which `prompt` begins, and their lengths.
    fn children(&mut self, node: Slot, prompt: &[u8]) -> crate::Few<(Slot, usize)> {
        let Self { index, lookups, hashed, lengths, .. } = self;
        let parent = index.nodes.key(node);
        lengths.clear();
        index.nodes.child_lengths(node, lengths);
        let mut children = crate::Few::new();
        for &length in &*lengths {
            let Some(block) = prompt.get(..length) else { continue };
            let Some(left) = lookups.checked_sub(1).zip(hashed.checked_sub(length)) else { break };
            (*lookups, *hashed) = left;
            let child = index.nodes.child(node, key::child(parent, block));
            children.extend(child.map(|child| (child, length)));
        }
        children
    }

    /// Extends the open runs of the endpoints that hold a node. Returns whether there are any.
    fn extend(&self, runs: &mut [Run], node: Slot, length: usize, nodes: u32) -> bool {
        let tokens = self.index.nodes.tokens(node);
        let mut has_any = false;
        for cached in self.index.nodes.copies(node) {
            let Some(run) = runs.get_mut(usize::from(cached.holder.0)).filter(|run| run.nodes == nodes)
            else {
                continue;
            };
            if let Some(bytes) = run.bytes.get_mut(cached.tier as usize) {
                *bytes += length as u64;
            }
            let Ranks(ranks) = if nodes == 0 { cached.ranks } else { Ranks(cached.ranks.0 & run.ranks.0) };
            if run.ranked_nodes == nodes && ranks != 0 {
                run.ranks = Ranks(ranks);
                run.ranked_nodes += 1;
                run.ranked += length as u64;
            }
            run.tokens += u64::from(tokens);
            run.nodes += 1;
            has_any = true;
        }
        has_any
    }

    /// Keeps the runs that are longer than those of other ways.
    fn keep(&mut self, runs: &[Run]) {
        for (longest, run) in self.longest.iter_mut().zip(runs) {
            if run.tokens > longest.tokens {
                *longest = *run;
            }
        }
    }
}
