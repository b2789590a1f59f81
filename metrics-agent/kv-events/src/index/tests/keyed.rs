//! Prefixes by their text and token ids: recorded servers, engines with other blocks, and readers that follow
//! changes.

use std::path::Path;

use endpoint_picker::request::cached_prompt::PromptKind;
use endpoint_picker::state::prefix::key;
use endpoint_picker_wire::prefixes::CachedPrefixes;
use endpoint_picker_wire::{Message as _, PREFIXES_FORMAT};

use super::recorded::{RecordedMessage, RecordedRequest, Replayed, lines, message};
use super::*;
use crate::batch::Batch;
use crate::prefixes::readers::{FollowedEndpoints, PoolReaders, PrefixesRead, ReaderPosition};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/captures/kv-events/tiny-model");

/// The model of the recorded servers.
fn tiny() -> Arc<KeyedModel> {
    let tokenizer = Tokenizer::read(Path::new(TINY)).unwrap();
    Arc::new(KeyedModel::new("tiny", Some(Arc::new(tokenizer)), false))
}

/// The bytes of token ids.
fn bytes_of(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// The prefixes of a pool's endpoints, as a proxy has read them. The key of an endpoint is its server's
/// number.
#[derive(Default)]
struct Reader {
    position: Option<ReaderPosition>,
    /// Parent, length and tier of each pair of a key and an endpoint.
    pairs: BTreeMap<(u64, u64), (u64, u32, u32)>,
    wholes: usize,
}

impl Reader {
    /// Reads until there is nothing new.
    fn read(&mut self, readers: &mut PoolReaders, index: &mut Index, servers: &[u8]) {
        let followed = || FollowedEndpoints {
            addresses: servers.iter().map(|number| (u64::from(*number), server(*number))).collect(),
            ..FollowedEndpoints::default()
        };
        while let PrefixesRead::Message(bytes) = readers
            .read(index.prefixes_mut(), followed(), self.position, false, core::time::Duration::ZERO)
            .encode()
        {
            let message = CachedPrefixes::decode(&*bytes).unwrap();
            assert_eq!(message.format, PREFIXES_FORMAT);
            self.position = Some(ReaderPosition { log: message.log, version: message.version });
            if message.whole {
                self.pairs.clear();
                self.wholes += 1;
            }
            for (key, at) in message.removed.iter().flat_map(|it| it.keys.iter().zip(&it.endpoints)) {
                self.pairs.remove(&(*key, message.endpoints[*at as usize]));
            }
            if let Some(blocks) = message.stored {
                for (at, key) in blocks.keys.into_iter().enumerate() {
                    let endpoint = message.endpoints[blocks.endpoints[at] as usize];
                    let pair = (blocks.parents[at], blocks.lengths[at], blocks.tiers[at]);
                    self.pairs.insert((key, endpoint), pair);
                }
            }
        }
    }

    /// Prefixes from the beginning of a prompt, given by its bytes, that an endpoint has.
    fn run(&self, endpoint: u64, root: u64, prompt: &[u8]) -> usize {
        let next = |parent: u64, prompt: &[u8]| {
            self.pairs.iter().find_map(|((key, at), (before, length, _))| {
                let (block, rest) = prompt.split_at_checked(*length as usize)?;
                let is_next = *at == endpoint && *before == parent && *key == key::child(parent, block);
                is_next.then_some((*key, rest.to_vec()))
            })
        };
        let mut at = (root, prompt.to_vec());
        let mut run = 0;
        while let Some(behind) = next(at.0, &at.1) {
            at = behind;
            run += 1;
        }
        run
    }
}

/// Replays recorded messages with the requests that caused them, whose cached tokens a reader predicts by
/// their prompts of this kind.
fn replay(index: &mut Index, id: CacheId, kind: PromptKind, messages: &str, requests: &str) -> Replayed {
    const SIZE: usize = 32;
    let (messages, requests) = (lines::<RecordedMessage>(messages), lines::<RecordedRequest>(requests));
    let (mut readers, mut reader) = (PoolReaders::default(), Reader::default());
    let mut messages = messages.iter().peekable();
    let mut replayed = Replayed::default();
    for request in requests {
        while let Some(recorded) = messages.next_if(|message| message.at < request.at) {
            let batch = Batch::read(&message(&recorded.frames).payload).unwrap();
            batch.events.iter().for_each(|event| index.apply(id, event, 0));
            index.check();
        }
        reader.read(&mut readers, index, &[1]);
        let root = kind.root(&request.model, request.salt.as_deref());
        let predicted = request.prompts.iter().zip(&request.texts).map(|(prompt, text)| {
            // The ids of the one prompt without text are not all in the vocabulary.
            let bytes = match kind {
                PromptKind::Text => text.as_ref().map(|text| text.as_bytes().to_vec()),
                PromptKind::TokenIds => Some(bytes_of(prompt)),
            };
            let run = bytes.map_or(0, |bytes| reader.run(1, root, &bytes));
            run.min((prompt.len() - 1) / SIZE) * SIZE
        });
        let predicted: Vec<_> = predicted.collect();
        replayed.add(request, &predicted, messages.peek().copied());
    }
    assert_eq!(reader.wholes, 1, "everything once, then changes");
    replayed
}

#[test]
fn texts_and_token_ids_predict_the_cached_tokens_of_all_recorded_requests() {
    let tokenizer = Arc::new(Tokenizer::read(Path::new(TINY)).unwrap());
    for (kind, tokenizer, has_token_ids) in [
        (PromptKind::Text, Some(&tokenizer), false),
        (PromptKind::TokenIds, None, true),
        (PromptKind::Text, Some(&tokenizer), true),
        (PromptKind::TokenIds, Some(&tokenizer), true),
    ] {
        let mut index = Index::new(Limits { blocks: 1000, prefix_tokens: 32 });
        let model = KeyedModel::new("tiny", tokenizer.cloned(), has_token_ids);
        let id = index.add_cache(server(1), Some(Arc::new(model)));
        let (messages, requests) = (captured!("base.events.jsonl"), captured!("base.requests.jsonl"));
        // As the index of tokens.
        let expected = Replayed { after_reset: vec!["after the reset".to_owned()], ..Replayed::all(31) };
        assert_eq!(replay(&mut index, id, kind, messages, requests), expected, "{kind:?}");
        index.clear(id);
        let (messages, requests) = (captured!("evict.events.jsonl"), captured!("evict.requests.jsonl"));
        assert_eq!(replay(&mut index, id, kind, messages, requests), Replayed::all(18), "{kind:?}");
    }
}

#[test]
fn engines_with_other_names_and_blocks_have_the_same_prefixes() {
    let mut index = Index::new(Limits { blocks: 1000, prefix_tokens: 4 });
    let prompt: Vec<u32> = (0..17).collect();
    for (number, size) in (1..).zip([1, 2, 4]) {
        let id = index.add_cache(server(number), Some(numbers_and_ids()));
        let blocks = prompt.len() / size;
        let hashes: Vec<_> = (0..blocks as u64).map(|at| u64::from(number) << 32 | at).collect();
        index.apply(id, &stored(None, &hashes, &prompt[..blocks * size]), 0);
        index.check();
    }
    assert_eq!(
        index.totals().prefixes,
        8,
        "three servers have four by text and four by ids, and the unfinished fifth is left out"
    );
    let mut reader = Reader::default();
    reader.read(&mut PoolReaders::default(), &mut index, &[1, 2, 3]);
    let text = prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(";") + ";";
    let root = key::root("numbers", None);
    assert_eq!([1, 2, 3].map(|endpoint| reader.run(endpoint, root, text.as_bytes())), [4; 3]);
    assert_eq!(reader.run(1, root, b"0;1;2;3;5;"), 1);
    let root = key::root_of_token_ids("numbers", None);
    assert_eq!([1, 2, 3].map(|endpoint| reader.run(endpoint, root, &bytes_of(&prompt))), [4; 3]);
    assert_eq!(reader.run(1, root, &bytes_of(&[0, 1, 2, 3, 5])), 1);
}

#[test]
fn unknown_tokens_and_images_end_the_text_of_a_prompt() {
    let mut index = index(1000);
    let id = index.add_cache(server(1), Some(numbers()));
    index.apply(id, &stored(None, &[1, 2, 3], &[1, 1, 1, 99, 1, 1, 1, 1, 1]), 0);
    index.apply(id, &stored(Some(3), &[4], &[1, 1, 1]), 0);
    assert_eq!(
        (index.totals().prefixes, index.totals().nodes),
        (1, 4),
        "only the blocks before the unknown token"
    );
    let image = edit(stored(None, &[5, 6], &[2, 2, 2, 2, 2, 2]), |stored| stored.blocks[0].extra = vec![7]);
    index.apply(id, &image, 0);
    assert_eq!((index.totals().prefixes, index.totals().nodes), (1, 6));
    index.check();
}

#[test]
fn unknown_tokens_have_ids_and_images_have_not() {
    let mut index = index(1000);
    let id = index.add_cache(server(1), Some(numbers_and_ids()));
    let prompt = [1, 1, 1, 99, 1, 1, 1, 1, 1];
    index.apply(id, &stored(None, &[1, 2, 3], &prompt), 0);
    let image = edit(stored(None, &[5, 6], &[2, 2, 2, 2, 2, 2]), |stored| stored.blocks[0].extra = vec![7]);
    index.apply(id, &image, 0);
    index.check();
    let mut reader = Reader::default();
    reader.read(&mut PoolReaders::default(), &mut index, &[1]);
    assert_eq!(reader.run(1, key::root("numbers", None), b"1;1;1;1;1;1;"), 1);
    let root = key::root_of_token_ids("numbers", None);
    assert_eq!(reader.run(1, root, &bytes_of(&prompt)), 3);
    assert_eq!(reader.run(1, root, &bytes_of(&[2; 6])), 0);
}

#[test]
fn a_prefix_is_in_the_slowest_tier_of_its_blocks() {
    let mut index = index(1000);
    let id = index.add_cache(server(1), Some(numbers()));
    let (mut readers, mut reader) = (PoolReaders::default(), Reader::default());
    let mut tier = |index: &mut Index| {
        index.check();
        reader.read(&mut readers, index, &[1]);
        reader.pairs.values().next().map(|(_, _, tier)| *tier)
    };
    index.apply(id, &stored(None, &[1, 2, 3], &[1, 2, 3]), 0);
    assert_eq!(tier(&mut index), Some(0));
    let moved = edit(stored(None, &[2], &[0]), |stored| {
        (stored.parent, stored.block_size, stored.tokens, stored.tier) =
            (Some(1), 0, Vec::new(), StorageTier::Cpu);
    });
    index.apply(id, &moved, 0);
    assert_eq!(tier(&mut index), Some(0), "both have it");
    index.apply(id, &removed(&[2]), 0);
    assert_eq!(tier(&mut index), Some(1));
    index.apply(id, &KvEvent::Removed(Removed { blocks: vec![2], tier: StorageTier::Cpu, group: 0 }), 0);
    assert_eq!(tier(&mut index), None, "its middle is missing");
    index.apply(id, &stored(Some(1), &[2], &[2]), 0);
    assert_eq!(tier(&mut index), Some(0));
}

#[test]
fn orphans_get_their_keys_from_their_parent() {
    let mut index = index(1000);
    let (late, early) = (
        index.add_cache(server(1), Some(numbers_and_ids())),
        index.add_cache(server(2), Some(numbers_and_ids())),
    );
    index.apply(late, &stored(Some(1), &[2, 3, 4], &[5, 6, 7]), 0);
    assert_eq!(index.totals().prefixes, 0);
    index.apply(early, &stored(None, &[1], &[1, 2, 3]), 0);
    index.check();
    let mut reader = Reader::default();
    reader.read(&mut PoolReaders::default(), &mut index, &[1, 2]);
    assert_eq!(reader.pairs.keys().map(|(_, endpoint)| *endpoint).collect::<Vec<_>>().len(), 4);
    assert_eq!(reader.run(2, key::root("numbers", None), b"1;2;3;5;6;7;"), 1);
    let root = key::root_of_token_ids("numbers", None);
    assert_eq!(reader.run(2, root, &bytes_of(&[1, 2, 3, 5, 6, 7])), 1);
    // A model of other text shares neither blocks nor names.
    let id = index.add_cache(server(3), Some(tiny()));
    index.apply(id, &stored(Some(1), &[2], &[5]), 0);
    assert_eq!(index.contents(id), Contents { blocks: 1, orphans: 1, tokens: [1, 0, 0] });
}

#[test]
fn bytes_of_orphans_are_bounded() {
    let mut index = Index::new(Limits { blocks: 800, prefix_tokens: 4 });
    let (small, large) = (
        index.add_cache(server(1), Some(numbers_and_ids())),
        index.add_cache(server(2), Some(numbers_and_ids())),
    );
    index.apply(small, &stored(Some(1), &[2], &[1; 64]), 0);
    for hash in 10..90 {
        index.apply(large, &stored(Some(hash + 1000), &[hash], &[1; 4096]), u32::try_from(hash).unwrap());
        assert!(index.orphans.total().bytes <= 100 * ORPHAN_BYTES);
    }
    index.check();
    assert_eq!(index.contents(small).orphans, 1);
    assert!(index.contents(large).orphans < 10, "{:?}", index.contents(large));
}

/// An event of a cache: a path of tokens is stored or removed in a tier, or all is cleared.
#[derive(Clone, Debug)]
struct Change {
    cache: usize,
    path: Vec<u32>,
    kind: u8,
    tier: StorageTier,
}

fn step() -> impl Strategy<Value = Change> {
    let tier = prop_oneof![Just(StorageTier::Gpu), Just(StorageTier::Cpu), Just(StorageTier::Storage)];
    let path = prop::collection::vec(0..2_u32, 1..8);
    (0..3_usize, path, 0..12_u8, tier).prop_map(|(cache, path, kind, tier)| Change {
        cache,
        path,
        kind,
        tier,
    })
}

proptest! {
    /// Changes that are applied to an empty reader are always the whole, whichever of the pool's servers it
    /// follows.
    #[test]
    fn changes_add_up_to_the_whole(steps in prop::collection::vec(step(), 1..80)) {
        let mut index = index(10_000);
        // The first two are ranks of one server.
        let ids = [1, 1, 2].map(|number| index.add_cache(server(number), Some(numbers_and_ids())));
        let (mut readers, mut reader, mut late) = (PoolReaders::default(), Reader::default(), Reader::default());
        for (at, Change { cache, path, kind, tier }) in steps.into_iter().enumerate() {
            let hashes: Vec<_> = (1..=path.len()).map(|length| name(&path[..length])).collect();
            let event = match kind {
                0 => KvEvent::Cleared,
                1..=4 => KvEvent::Removed(Removed { blocks: vec![name(&path)], tier, group: 0 }),
                _ => edit(stored(None, &hashes, &path), |stored| stored.tier = tier),
            };
            index.apply(ids[cache], &event, 0);
            index.check();
            reader.read(&mut readers, &mut index, &[1, 2]);
            if at % 7 == 0 {
                late.read(&mut readers, &mut index, &[1, 2]);
            }
            let mut whole = Reader::default();
            whole.read(&mut PoolReaders::default(), &mut index, &[1, 2]);
            prop_assert_eq!(&reader.pairs, &whole.pairs);
        }
        late.read(&mut readers, &mut index, &[1, 2]);
        prop_assert_eq!(&late.pairs, &reader.pairs);
        prop_assert_eq!((reader.wholes, late.wholes), (1, 1));
    }

    /// Two agents that follow the same servers in another order, and in batches of other sizes, publish the
    /// same prefixes.
    #[test]
    fn agents_agree(paths in prop::collection::vec((0..2_u8, prop::collection::vec(0..3_u32, 1..9)), 1..30), chunk in 1..5_usize) {
        let published = |order: [u8; 2], chunk: usize| {
            let mut index = index(10_000);
            let ids = order.map(|number| (number, index.add_cache(server(number + 1), Some(numbers()))));
            for (number, path) in order.iter().flat_map(|number| paths.iter().filter(move |(own, _)| own == number)) {
                let id = ids.iter().find(|(own, _)| own == number).unwrap().1;
                let hashes: Vec<_> = (1..=path.len()).map(|length| name(&path[..length])).collect();
                let mut parent = None;
                for (hashes, tokens) in hashes.chunks(chunk).zip(path.chunks(chunk)) {
                    index.apply(id, &stored(parent, hashes, tokens), 0);
                    parent = hashes.last().copied();
                }
            }
            index.check();
            let mut reader = Reader::default();
            reader.read(&mut PoolReaders::default(), &mut index, &[1, 2]);
            reader.pairs
        };
        prop_assert_eq!(published([0, 1], 1), published([1, 0], chunk));
    }
}
