use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::cache::MAX_GROUPS;
use super::*;
use crate::event::Block;
use crate::prefixes::Prefix;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::vocabulary::{LeadingSpace, Vocabulary};

/// The captures of tests/captures/kv-events.
macro_rules! captured {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/captures/kv-events/", $file))
    };
}

mod keyed;
mod recorded;

const BLOCK: usize = 4;

impl Index {
    /// Blocks from the beginning of a prompt that a cache has, in blocks of this length.
    fn run(
        &self,
        id: CacheId,
        adapter: Option<&[u8]>,
        salt: Option<&[u8]>,
        tokens: &[u32],
        size: usize,
    ) -> usize {
        let cache = &self.caches[&id];
        let nodes: HashMap<_, _> =
            cache.blocks.values().filter_map(|held| Some((held.node?, held.copies))).collect();
        let mut key = NodeKey::root(cache.scope(), adapter, salt);
        let mut keys = tokens.chunks_exact(size).map(|tokens| {
            key = key.child(Content::of(tokens, &[]));
            key
        });
        keys.by_ref().take_while(|key| nodes.contains_key(key)).count()
    }

    /// Counts everything again.
    fn check(&self) {
        let mut caches_of: HashMap<NodeKey, u32> = HashMap::new();
        let mut blocks = 0;
        for cache in self.caches.values() {
            let mut contents = Contents::default();
            for held in cache.blocks.values() {
                assert_ne!(held.copies, [0; 3]);
                contents.blocks += 1;
                contents.orphans += u64::from(held.node.is_none());
                for (tokens, copies) in contents.tokens.iter_mut().zip(held.copies) {
                    *tokens += if copies > 0 { u64::from(held.tokens) } else { 0 };
                }
                held.node.into_iter().for_each(|node| *caches_of.entry(node).or_default() += 1);
            }
            assert_eq!(cache.contents, contents);
            blocks += cache.blocks.len();
        }
        assert_eq!(self.blocks, blocks);
        assert!(blocks <= self.limits.blocks, "{blocks} blocks");
        assert!(self.orphans.total().count <= self.limits.blocks / ORPHANS);
        self.nodes.check(&caches_of);
        self.prefixes.check(&self.complete_prefixes());
    }

    /// The prefixes of which a cache of a server has all blocks.
    fn complete_prefixes(&self) -> HashMap<(SocketAddr, Prefix), StorageTier> {
        let mut complete: HashMap<_, StorageTier> = HashMap::new();
        for cache in self.caches.values() {
            let mut tiers: HashMap<NodeKey, StorageTier> = HashMap::new();
            for held in cache.blocks.values() {
                let tier = StorageTier::ALL.into_iter().find(|tier| held.copies[*tier as usize] > 0).unwrap();
                if let Some(node) = held.node {
                    tiers.entry(node).and_modify(|before| *before = tier.min(*before)).or_insert(tier);
                }
            }
            for (key, tier) in &tiers {
                let Some(KeyedPrompt::End(ends)) = self.nodes.keyed(*key).map(|keyed| &keyed.prompt) else {
                    continue;
                };
                let (mut slowest, mut at) = (Some(*tier), *key);
                while slowest.is_some() && !self.nodes.keyed(at).unwrap().is_first {
                    at = self.nodes.get(at).unwrap().parent;
                    slowest = slowest.zip(tiers.get(&at)).map(|(slowest, tier)| slowest.max(*tier));
                }
                for (prefix, tier) in ends.prefixes().filter_map(|prefix| Some((prefix, slowest?))) {
                    let entry = complete.entry((cache.server, *prefix));
                    entry.and_modify(|before| *before = tier.min(*before)).or_insert(tier);
                }
            }
        }
        complete
    }
}

/// A model of 30 tokens, `0;` to `29;`, with keys by their text.
fn numbers() -> Arc<KeyedModel> {
    Arc::new(KeyedModel::new("numbers", Some(numbers_tokenizer()), false))
}

/// The same with keys by their token ids too.
fn numbers_and_ids() -> Arc<KeyedModel> {
    Arc::new(KeyedModel::new("numbers", Some(numbers_tokenizer()), true))
}

fn numbers_tokenizer() -> Arc<Tokenizer> {
    let mut vocabulary = Vocabulary::new(LeadingSpace::Never);
    (0..30).for_each(|id| vocabulary.insert(id, format!("{id};").as_bytes(), false).unwrap());
    let empty = String::new();
    let (chat_template, bos_token, eos_token) = (empty.clone(), empty.clone(), empty);
    Arc::new(Tokenizer {
        vocabulary,
        digest: 1,
        chat_template,
        bos_token,
        eos_token,
        adds_bos: false,
        normalizes: false,
    })
}

/// An index of prefixes of three tokens.
fn index(blocks: usize) -> Index {
    Index::new(Limits { blocks, prefix_tokens: 3 })
}

fn stored(parent: Option<BlockHash>, hashes: &[BlockHash], tokens: &[u32]) -> KvEvent {
    KvEvent::Stored(Stored {
        parent,
        blocks: hashes.iter().map(|hash| Block { hash: *hash, extra: Vec::new() }).collect(),
        block_size: tokens.len() / hashes.len(),
        tokens: tokens.to_vec(),
        tier: StorageTier::Gpu,
        group: 0,
        is_full_attention: true,
        adapter: None,
        salt: None,
    })
}

fn removed(hashes: &[BlockHash]) -> KvEvent {
    KvEvent::Removed(Removed { blocks: hashes.to_vec(), tier: StorageTier::Gpu, group: 0 })
}

fn server(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 8000))
}

/// An index with one cache.
fn one() -> (Index, CacheId) {
    let mut index = index(1000);
    let id = index.add_cache(server(1), None);
    (index, id)
}

fn edit(event: KvEvent, change: impl FnOnce(&mut Stored)) -> KvEvent {
    let KvEvent::Stored(mut stored) = event else { panic!("{event:?}") };
    change(&mut stored);
    KvEvent::Stored(stored)
}

#[test]
fn copies_are_counted_by_tier_and_announcements_are_no_copies() {
    let (mut index, id) = one();
    let prompt = [1, 2, 3, 4, 5, 6, 7, 8];
    index.apply(id, &stored(None, &[10, 11], &prompt), 0);
    index.apply(id, &stored(None, &[10, 11], &prompt), 0);
    index.apply(id, &stored(Some(10), &[11], &prompt[4..]), 0);
    index.apply(id, &removed(&[11]), 0);
    assert_eq!(index.run(id, None, None, &prompt, BLOCK), 2, "the second copy is left");
    let to_host = edit(stored(None, &[10, 11], &prompt), |stored| {
        (stored.block_size, stored.tokens, stored.tier) = (0, Vec::new(), StorageTier::Cpu);
    });
    index.apply(id, &to_host, 0);
    index.apply(id, &removed(&[10, 11]), 0);
    assert_eq!(index.contents(id), Contents { blocks: 2, orphans: 0, tokens: [0, 8, 0] });
    index.check();
    let from_host = KvEvent::Removed(Removed { blocks: vec![10, 11], tier: StorageTier::Cpu, group: 0 });
    index.apply(id, &from_host, 0);
    index.apply(id, &from_host, 0);
    assert_eq!((index.contents(id), index.totals()), (Contents::default(), IndexTotals::default()));
    index.check();
}

#[test]
fn groups_without_full_attention_do_not_count() {
    let (mut index, id) = one();
    let prompt = [1, 2, 3, 4];
    let in_group = |group, is_full| {
        edit(stored(None, &[10], &prompt), |stored| {
            (stored.group, stored.is_full_attention) = (group, is_full);
        })
    };
    index.apply(id, &in_group(1, false), 0);
    assert_eq!(index.contents(id).blocks, 0);
    index.apply(id, &in_group(0, true), 0);
    index.apply(id, &in_group(2, true), 0);
    for group in [1, 2, 3] {
        index.apply(id, &KvEvent::Removed(Removed { blocks: vec![10], tier: StorageTier::Gpu, group }), 0);
    }
    assert_eq!(index.contents(id).blocks, 1, "the first group of full attention has it");
    index.apply(id, &removed(&[10]), 0);
    assert_eq!(index.contents(id).blocks, 0);
    for group in 3..200 {
        index.apply(id, &in_group(group, false), 0);
    }
    assert_eq!(index.caches[&id].groups.len(), MAX_GROUPS);
}

#[test]
fn adapters_and_salts_have_prompts_of_their_own() {
    let (mut index, id) = one();
    let prompt = [1, 2, 3, 4, 5, 6, 7, 8];
    let of = |hashes: &[BlockHash], adapter: Option<&[u8]>, salt: Option<&[u8]>| {
        edit(stored(None, hashes, &prompt[..BLOCK * hashes.len()]), |stored| {
            (stored.adapter, stored.salt) = (adapter.map(<[u8]>::to_vec), salt.map(<[u8]>::to_vec));
        })
    };
    index.apply(id, &of(&[10, 11], Some(b"a"), None), 0);
    index.apply(id, &of(&[20], None, Some(b"a")), 0);
    index.apply(id, &stored(Some(20), &[21], &prompt[4..]), 0);
    let run = |adapter, salt| index.run(id, adapter, salt, &prompt, BLOCK);
    assert_eq!(
        [run(None, None), run(Some(b"a"), None), run(None, Some(b"a")), run(Some(b"a"), Some(b"a"))],
        [0, 2, 2, 0]
    );
}

#[test]
fn orphans_wait_for_their_parent_from_whatever_cache() {
    let mut index = index(1000);
    let (early, late) = (index.add_cache(server(1), None), index.add_cache(server(2), None));
    let prompt: Vec<u32> = (0..16).collect();
    // The agent came late: of this cache only the end of a prompt was announced.
    index.apply(late, &stored(Some(11), &[12], &prompt[8..12]), 0);
    index.apply(late, &stored(Some(12), &[13], &prompt[12..]), 0);
    assert_eq!(index.contents(late), Contents { blocks: 2, orphans: 2, tokens: [8, 0, 0] });
    index.check();
    index.apply(early, &stored(None, &[10, 11], &prompt[..8]), 0);
    index.check();
    assert_eq!((index.contents(late).orphans, index.totals().orphans), (0, 0));
    assert_eq!(index.run(late, None, None, &prompt, BLOCK), 0, "its first blocks were not announced");
    // A block whose parent only another cache has announced shows that its cache has the parent too, with all
    // before it.
    index.apply(late, &stored(Some(11), &[99], &[7, 7, 7, 7]), 0);
    assert_eq!(index.run(late, None, None, &prompt, BLOCK), 4);
    index.check();
    // It removes them under the common names.
    index.apply(late, &removed(&[10]), 0);
    assert_eq!(index.run(late, None, None, &prompt, BLOCK), 0);
    index.check();
    // An orphan that was removed before its parent came, and one that a full announcement ends.
    index.apply(late, &stored(Some(50), &[51], &[1, 1, 1, 1]), 0);
    index.apply(late, &removed(&[51]), 0);
    index.apply(late, &stored(Some(60), &[61], &[2, 2, 2, 2]), 0);
    index.apply(early, &stored(None, &[50], &[3, 3, 3, 3]), 0);
    index.apply(late, &stored(None, &[60, 61], &[4, 4, 4, 4, 2, 2, 2, 2]), 0);
    assert_eq!(index.run(late, None, None, &[4, 4, 4, 4, 2, 2, 2, 2], BLOCK), 2);
    index.check();
    index.remove_cache(late);
    index.remove_cache(early);
    assert_eq!((index.totals(), index.nodes.len()), (IndexTotals::default(), 0));
}

#[test]
fn blocks_that_only_another_cache_has_announced_are_added_up_to_a_limit() {
    let mut index = index(1_000_000);
    let (known, late) = (index.add_cache(server(1), None), index.add_cache(server(2), None));
    let count = MAX_ANCESTORS + 10;
    let hashes: Vec<_> = (1..=count as u64).collect();
    index.apply(known, &stored(None, &hashes, &vec![1; count * BLOCK]), 0);
    index.apply(late, &stored(Some(count as u64), &[1_000_000], &[2; BLOCK]), 0);
    assert_eq!(index.contents(late).blocks, MAX_ANCESTORS as u64 + 1);
    assert_eq!(index.contents(late).orphans, 0);
}

#[test]
fn the_largest_cache_loses_its_oldest_blocks() {
    let mut index = index(100);
    let (small, large) = (index.add_cache(server(1), None), index.add_cache(server(2), None));
    let block = |hash: BlockHash| stored(None, &[hash], &[u32::try_from(hash).unwrap(); BLOCK]);
    for hash in 0..20 {
        index.apply(small, &block(hash), 0);
    }
    for hash in 100..5_000 {
        index.apply(large, &block(hash), u32::try_from(hash).unwrap());
    }
    index.check();
    assert_eq!(index.contents(small).blocks, 20, "a flood of one server costs no other");
    assert!((70..=80).contains(&index.contents(large).blocks), "{:?}", index.contents(large));
    assert_eq!(index.run(large, None, None, &[4_999; BLOCK], BLOCK), 1, "the newest block is there");
    assert!(index.totals().evicted > 4_000);
    for hash in 100..5_000 {
        index.apply(large, &stored(Some(hash + 1_000_000), &[hash], &[1; BLOCK]), 7);
    }
    index.check();
}

#[test]
fn a_server_of_many_ranks_costs_no_other() {
    let mut index = index(100);
    let small = index.add_cache(server(1), None);
    let ranks = [(); 50].map(|()| index.add_cache(server(2), None));
    let block = |hash: BlockHash| stored(None, &[hash], &[u32::try_from(hash).unwrap(); BLOCK]);
    for hash in 0..20 {
        index.apply(small, &block(hash), 0);
    }
    for (hash, rank) in (100..5_000).zip(ranks.into_iter().cycle()) {
        index.apply(rank, &block(hash), 1);
    }
    index.check();
    assert_eq!(index.contents(small).blocks, 20, "each rank has fewer, all ranks together more");
}

#[test]
fn the_server_with_the_most_orphans_loses_the_oldest() {
    let mut index = index(800);
    let (small, large) = (index.add_cache(server(1), None), index.add_cache(server(2), None));
    let orphan = |hash: BlockHash| stored(Some(hash + 1_000_000), &[hash], &[1; BLOCK]);
    for hash in 0..20 {
        index.apply(small, &orphan(hash), 0);
    }
    for hash in 100..1_000 {
        index.apply(large, &orphan(hash), u32::try_from(hash).unwrap());
    }
    index.check();
    assert_eq!(index.contents(small).orphans, 20, "a flood of one server costs no other");
    assert!((60..=80).contains(&index.contents(large).orphans), "{:?}", index.contents(large));
}

/// A cache as lists of copies: what the index does for one cache, plainly.
#[derive(Default)]
struct Oracle {
    /// The prompt up to each name, and the number of copies.
    blocks: BTreeMap<BlockHash, (Vec<u32>, usize)>,
}

/// A block of a small tree of prompts: the path from the beginning.
fn path() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..3_u32, 1..5)
}

fn name(path: &[u32]) -> BlockHash {
    path.iter().fold(1, |name, token| name * 10 + BlockHash::from(*token))
}

#[derive(Clone, Debug)]
enum Operation {
    Store(usize, Vec<u32>),
    Remove(usize, Vec<u32>),
    Clear(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0..2_usize, path()).prop_map(|(cache, path)| Operation::Store(cache, path)),
        4 => (0..2_usize, path()).prop_map(|(cache, path)| Operation::Remove(cache, path)),
        1 => (0..2_usize).prop_map(Operation::Clear),
    ]
}

proptest! {
    /// Caches that announce whole prompts have exactly what they announced, and every count is right.
    #[test]
    fn the_index_agrees_with_lists_of_copies(operations in prop::collection::vec(operation(), 1..60)) {
        let mut index = index(10_000);
        let ids = [index.add_cache(server(1), Some(numbers())), index.add_cache(server(2), Some(numbers()))];
        let mut oracles = [Oracle::default(), Oracle::default()];
        for operation in operations {
            match operation {
                Operation::Store(cache, path) => {
                    let prefixes: Vec<_> = (1..=path.len()).map(|length| path[..length].to_vec()).collect();
                    let hashes: Vec<_> = prefixes.iter().map(|prefix| name(prefix)).collect();
                    index.apply(ids[cache], &stored(None, &hashes, &path), 0);
                    let blocks = &mut oracles[cache].blocks;
                    let is_repeated = hashes.iter().all(|hash| blocks.contains_key(hash));
                    for (hash, prefix) in hashes.into_iter().zip(prefixes) {
                        blocks.entry(hash).or_insert((prefix, 0)).1 += usize::from(!is_repeated);
                    }
                }
                Operation::Remove(cache, path) => {
                    let hash = name(&path);
                    index.apply(ids[cache], &removed(&[hash]), 0);
                    if let Some((_, copies)) = oracles[cache].blocks.get_mut(&hash) {
                        *copies -= 1;
                    }
                    oracles[cache].blocks.retain(|_, (_, copies)| *copies > 0);
                }
                Operation::Clear(cache) => {
                    index.apply(ids[cache], &KvEvent::Cleared, 0);
                    oracles[cache].blocks.clear();
                }
            }
            index.check();
        }
        for (id, oracle) in ids.into_iter().zip(oracles) {
            prop_assert_eq!(index.contents(id).blocks, oracle.blocks.len() as u64);
            for (prefix, _) in oracle.blocks.values() {
                let known = (1..=prefix.len()).take_while(|length| oracle.blocks.contains_key(&name(&prefix[..*length])));
                prop_assert_eq!(index.run(id, None, None, prefix, 1), known.count());
            }
        }
    }

    /// Any events leave the counts right and the limits kept.
    #[test]
    fn any_events_are_counted(
        events in prop::collection::vec((0..2_usize, prop::option::of(0..40_u64), prop::collection::vec(0..40_u64, 1..6), 0..4_u8), 1..200)
    ) {
        let mut index = index(16);
        let ids = [index.add_cache(server(1), Some(numbers())), index.add_cache(server(2), Some(numbers()))];
        for (now, (cache, parent, hashes, kind)) in (0..).zip(events) {
            let tokens: Vec<u32> = hashes.iter().map(|hash| u32::try_from(*hash).unwrap()).collect();
            let event = match kind {
                0 => removed(&hashes),
                1 if hashes.len() == 5 => KvEvent::Cleared,
                _ => stored(parent, &hashes, &tokens),
            };
            index.apply(ids[cache], &event, now);
            index.check();
        }
        for id in ids {
            index.remove_cache(id);
        }
        prop_assert_eq!(index.nodes.len(), 0);
        prop_assert_eq!(index.totals().blocks, 0);
    }
}
