use core::time::Duration;
use std::collections::BTreeSet;

use endpoint_picker_wire::prefixes::{CachedPrefixes, Model};
use endpoint_picker_wire::{Message as _, PREFIXES_FORMAT};

use super::readers::{FollowedEndpoints, PoolReaders, PrefixesRead, ReaderPosition};
use super::*;

/// Maximum size of a message, in bytes.
const MAX_MESSAGE: usize = 4 << 20;

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 8000))
}

fn prefix(key: u64) -> Prefix {
    Prefix { key, parent: key / 2, length: 250, tokens: 64 }
}

/// Prefixes, their readers in one pool, and the number of a server with one cache.
struct Fixture {
    prefixes: Prefixes,
    readers: PoolReaders,
    server: ServerNumber,
    followed: FollowedEndpoints,
}

impl Fixture {
    fn new() -> Self {
        let mut prefixes = Prefixes::default();
        let server = prefixes.add_cache(address(1));
        let followed =
            FollowedEndpoints { addresses: vec![(11, address(1))], ..FollowedEndpoints::default() };
        Self { prefixes, readers: PoolReaders::default(), server, followed }
    }

    fn store(&mut self, keys: impl IntoIterator<Item = u64>) {
        keys.into_iter()
            .for_each(|key| self.prefixes.change(self.server, &prefix(key), None, Some(StorageTier::Gpu)));
    }

    fn remove(&mut self, keys: impl IntoIterator<Item = u64>) {
        keys.into_iter()
            .for_each(|key| self.prefixes.change(self.server, &prefix(key), Some(StorageTier::Gpu), None));
    }

    fn read_at(&mut self, reader: Option<ReaderPosition>, now: Duration) -> Option<CachedPrefixes> {
        match self.readers.read(&mut self.prefixes, self.followed.clone(), reader, true, now).encode() {
            PrefixesRead::Message(bytes) => {
                assert!(bytes.len() <= MAX_MESSAGE, "{} bytes", bytes.len());
                let message = CachedPrefixes::decode(&*bytes).unwrap();
                assert_eq!(message.format, PREFIXES_FORMAT);
                Some(message)
            }
            PrefixesRead::Nothing(_) => None,
        }
    }

    fn read(&mut self, reader: Option<ReaderPosition>) -> Option<CachedPrefixes> {
        self.read_at(reader, Duration::ZERO)
    }
}

fn position(message: &CachedPrefixes) -> ReaderPosition {
    ReaderPosition { log: message.log, version: message.version }
}

fn keys(blocks: Option<&Blocks>) -> Vec<u64> {
    blocks.map(|blocks| blocks.keys.clone()).unwrap_or_default()
}

#[test]
fn the_ranks_that_have_a_prefix_are_named_of_servers_with_several() {
    let mut fixture = Fixture::new();
    fixture.store([1]);
    let first = fixture.read(None).unwrap();
    assert_eq!(first.stored.as_ref().unwrap().ranks, [] as [u32; 0], "one rank");
    let [second, ninth] = [1, 8].map(|rank| fixture.prefixes.add_rank(address(1), rank));
    let mut changed = |number, from, to| fixture.prefixes.change(number, &prefix(1), from, to);
    changed(second, None, Some(StorageTier::Gpu));
    changed(ninth, None, Some(StorageTier::Gpu));
    fixture.store([2]);
    let next = fixture.read(Some(position(&first))).unwrap();
    let stored = next.stored.as_ref().unwrap();
    assert_eq!((&*stored.keys, &*stored.ranks), (&[1, 2][..], &[0b11, 0b1][..]));
    assert_eq!(next.removed, None);
    fixture.remove([1]);
    let last = fixture.read(Some(position(&next))).unwrap();
    let stored = last.stored.as_ref().unwrap();
    assert_eq!((&*stored.keys, &*stored.ranks), (&[1][..], &[0b10][..]), "the second rank still has it");
    let whole = fixture.read_at(None, Duration::from_secs(60)).unwrap().stored.unwrap();
    let mut pairs: Vec<_> = whole.keys.iter().zip(&whole.ranks).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(&1, &0b10), (&2, &0b1)]);
}

#[test]
fn a_reader_gets_everything_and_then_the_net_changes() {
    let mut fixture = Fixture::new();
    fixture.store(1..4);
    let whole = fixture.read(None).unwrap();
    assert!(whole.whole && whole.models_changed && !whole.more);
    assert_eq!(whole.endpoints, [11]);
    let mut stored = keys(whole.stored.as_ref());
    stored.sort_unstable();
    assert_eq!(stored, [1, 2, 3]);
    assert_eq!(fixture.read(Some(position(&whole))), None);
    // Stored and removed again, moved, removed, and stored.
    fixture.store([4]);
    fixture.remove([4]);
    fixture.prefixes.change(fixture.server, &prefix(1), Some(StorageTier::Gpu), Some(StorageTier::Cpu));
    fixture.remove([2]);
    fixture.store([5]);
    let delta = fixture.read(Some(position(&whole))).unwrap();
    assert!(!delta.whole && !delta.models_changed && !delta.more);
    let expected = Blocks {
        parents: vec![0, 2],
        keys: vec![1, 5],
        lengths: vec![250; 2],
        tokens: vec![64; 2],
        endpoints: vec![0; 2],
        tiers: vec![1, 0],
        ranks: Vec::new(),
    };
    assert_eq!(delta.stored, Some(expected));
    let removed = Blocks { keys: vec![1, 2], endpoints: vec![0; 2], tiers: vec![0; 2], ..Blocks::default() };
    assert_eq!(delta.removed, Some(removed));
    assert_eq!(fixture.read(Some(position(&delta))), None);
}

#[test]
fn everything_comes_in_parts_and_continues_with_what_has_changed_meanwhile() {
    let mut fixture = Fixture::new();
    let count = 2 * MAX_PAIRS as u64 + 1000;
    fixture.store(1..=count);
    let mut message = fixture.read(None).unwrap();
    let mut known: BTreeSet<u64> = keys(message.stored.as_ref()).into_iter().collect();
    fixture.remove([1, 2]);
    fixture.store([count + 1]);
    let mut parts = 1;
    while message.more {
        message = fixture.read(Some(position(&message))).unwrap();
        assert!(!message.whole);
        let removed = keys(message.removed.as_ref());
        known.retain(|key| !removed.contains(key));
        known.extend(keys(message.stored.as_ref()));
        parts += 1;
    }
    assert_eq!(parts, 3);
    let delta = fixture.read(Some(position(&message))).unwrap();
    let removed = keys(delta.removed.as_ref());
    known.retain(|key| !removed.contains(key));
    known.extend(keys(delta.stored.as_ref()));
    assert_eq!(known, (3..=count + 1).collect());
    // A reader that comes shortly after gets the same bytes, one that comes later others.
    let again = fixture.read_at(None, Duration::from_secs(9)).unwrap();
    assert!(!keys(again.stored.as_ref()).is_empty());
    let second = position(&again);
    let later = fixture.read_at(None, Duration::from_secs(20)).unwrap();
    assert_ne!(position(&later), second);
    let restarted = fixture.read_at(Some(second), Duration::from_secs(20)).unwrap();
    assert!(restarted.whole, "the parts of the older whole are gone");
}

#[test]
fn many_changes_come_in_parts_too() {
    let mut fixture = Fixture::new();
    let begin = fixture.read(None).unwrap();
    fixture.store(0..MAX_PAIRS as u64 + 10);
    let first = fixture.read(Some(position(&begin))).unwrap();
    assert!(first.more && !first.whole);
    let second = fixture.read(Some(position(&first))).unwrap();
    assert!(!second.more && !second.whole);
    assert_eq!(keys(first.stored.as_ref()).len() + keys(second.stored.as_ref()).len(), MAX_PAIRS + 10);
}

#[test]
fn a_reader_that_the_log_does_not_know_gets_everything() {
    let mut fixture = Fixture::new();
    fixture.store([1]);
    let begin = fixture.read(None).unwrap();
    for reader in [
        ReaderPosition { log: begin.log.wrapping_add(1), version: begin.version },
        ReaderPosition { log: begin.log, version: begin.version + 1 },
        ReaderPosition { log: begin.log, version: u64::MAX },
    ] {
        assert!(fixture.read(Some(reader)).unwrap().whole);
    }
    for _ in 0..300_000 {
        fixture.store([2]);
        fixture.remove([2]);
    }
    let behind = fixture.read(Some(position(&begin))).unwrap();
    assert!(behind.whole, "the log has forgotten some of the changes");
    assert_eq!(keys(behind.stored.as_ref()), [1]);
}

#[test]
fn an_endpoint_that_had_prefixes_before_it_came_to_the_pool_makes_a_new_log() {
    let mut fixture = Fixture::new();
    let other = fixture.prefixes.add_cache(address(2));
    fixture.prefixes.change(other, &prefix(7), None, Some(StorageTier::Gpu));
    let begin = fixture.read(None).unwrap();
    assert_eq!(
        (keys(begin.stored.as_ref()), begin.endpoints.len()),
        (vec![], 1),
        "the other server is not in the pool"
    );
    fixture.followed.addresses.push((22, address(2)));
    let whole = fixture.read(Some(position(&begin))).unwrap();
    assert!(whole.whole && whole.log != begin.log);
    assert_eq!(keys(whole.stored.as_ref()), [7]);
    // Another name of the same server is another endpoint.
    fixture.followed.addresses[1].0 = 23;
    assert!(fixture.read(Some(position(&whole))).unwrap().whole);
    let before = fixture.read(None).unwrap();
    // A server without prefixes needs no new log.
    fixture.followed.addresses.push((33, address(3)));
    assert_eq!(fixture.read(Some(position(&before))), None);
    let third = fixture.prefixes.add_cache(address(3));
    fixture.prefixes.change(third, &prefix(8), None, Some(StorageTier::Gpu));
    let delta = fixture.read(Some(position(&before))).unwrap();
    assert!(!delta.whole);
    assert_eq!(keys(delta.stored.as_ref()), [8]);
}

#[test]
fn models_come_again_when_they_change() {
    let mut fixture = Fixture::new();
    let begin = fixture.read(None).unwrap();
    let model = Model { names: vec!["m".to_owned()], root: 1, ..Model::default() };
    fixture.followed.models = vec![model.clone()];
    let changed = fixture.read(Some(position(&begin))).unwrap();
    assert!(changed.models_changed && !changed.whole);
    assert_eq!(changed.models, [model]);
    assert_eq!(fixture.read(Some(position(&changed))), None);
    assert!(fixture.read(Some(position(&begin))).unwrap().models_changed, "for each reader");
}

#[test]
fn changes_of_other_pools_are_no_news_until_the_last_reading() {
    let mut fixture = Fixture::new();
    let other = fixture.prefixes.add_cache(address(2));
    let begin = fixture.read(None).unwrap();
    fixture.prefixes.change(other, &prefix(7), None, Some(StorageTier::Gpu));
    let newest = fixture.prefixes.version();
    let mut reading = |is_last| {
        let Fixture { readers, prefixes, followed, .. } = &mut fixture;
        readers.read(prefixes, followed.clone(), Some(position(&begin)), is_last, Duration::ZERO).encode()
    };
    assert_eq!(reading(false), PrefixesRead::Nothing(newest));
    let PrefixesRead::Message(bytes) = reading(true) else { panic!() };
    let message = CachedPrefixes::decode(&*bytes).unwrap();
    assert_eq!((message.version, message.stored), (newest, None));
    fixture.prefixes.advance();
    assert!(fixture.read(Some(ReaderPosition { log: begin.log, version: newest })).is_some());
}

#[test]
fn a_server_is_forgotten_with_its_last_cache_and_change() {
    let mut prefixes = Prefixes::default();
    let numbers = [(); 2].map(|()| prefixes.add_cache(address(1)));
    assert_eq!(numbers[0], numbers[1]);
    prefixes.change(numbers[0], &prefix(1), None, Some(StorageTier::Gpu));
    prefixes.change(numbers[1], &prefix(1), None, Some(StorageTier::Cpu));
    prefixes.change(numbers[0], &prefix(1), Some(StorageTier::Gpu), None);
    prefixes.check(&[((address(1), prefix(1)), StorageTier::Cpu)].into());
    prefixes.change(numbers[1], &prefix(1), Some(StorageTier::Cpu), None);
    prefixes.check(&HashMap::new());
    for number in numbers {
        prefixes.remove_cache(number);
    }
    assert_eq!(prefixes.add_cache(address(1)), numbers[0], "the log has its changes");
    prefixes.remove_cache(numbers[0]);
    for _ in 0..1 << 19 {
        prefixes.advance();
    }
    assert!(prefixes.servers.is_empty() && prefixes.numbers.is_empty());
}
