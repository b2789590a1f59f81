use rmp::encode::{write_array_len, write_bin, write_map_len, write_nil, write_sint, write_str, write_uint};

use super::*;

/// A payload of these events, each already encoded.
fn payload(events: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_array_len(&mut bytes, 3).unwrap();
    rmp::encode::write_f64(&mut bytes, 1.5).unwrap();
    write_array_len(&mut bytes, u32::try_from(events.len()).unwrap()).unwrap();
    for event in events {
        bytes.extend_from_slice(event);
    }
    write_uint(&mut bytes, 0).unwrap();
    bytes
}

fn list(items: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_array_len(&mut bytes, u32::try_from(items.len()).unwrap()).unwrap();
    for item in items {
        write_uint(&mut bytes, *item).unwrap();
    }
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_str(&mut bytes, text).unwrap();
    bytes
}

fn map(fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_map_len(&mut bytes, u32::try_from(fields.len()).unwrap()).unwrap();
    for (name, value) in fields {
        bytes.extend(text(name));
        bytes.extend_from_slice(value);
    }
    bytes
}

fn array(items: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_array_len(&mut bytes, u32::try_from(items.len()).unwrap()).unwrap();
    for item in items {
        bytes.extend_from_slice(item);
    }
    bytes
}

const NIL: &[u8] = &[0xc0];

fn number(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_uint(&mut bytes, number).unwrap();
    bytes
}

fn expected() -> Stored {
    Stored {
        parent: Some(1),
        blocks: vec![Block { hash: 2, extra: Vec::new() }, Block { hash: 3, extra: Vec::new() }],
        block_size: 2,
        tokens: vec![10, 11, 12, 13],
        tier: StorageTier::Cpu,
        group: 0,
        is_full_attention: true,
        adapter: Some(b"a".to_vec()),
        salt: None,
    }
}

/// The only event of a batch.
fn only(event: Vec<u8>) -> Option<KvEvent> {
    let batch = Batch::read(&payload(&[event])).unwrap();
    assert_eq!(batch.events.len() + batch.unusable, 1);
    batch.events.into_iter().next()
}

#[test]
fn an_event_is_a_map_or_an_array() {
    let (hashes, tokens) = (list(&[2, 3]), list(&[10, 11, 12, 13]));
    let fields = [
        ("block_hashes", hashes.clone()),
        ("later", map(&[("x", NIL.to_vec())])),
        ("parent_block_hash", number(1)),
        ("token_ids", tokens.clone()),
        ("block_size", number(2)),
        ("medium", text("CPU_PINNED")),
        ("lora_name", text("a")),
        ("type", text("BlockStored")),
    ];
    assert_eq!(only(map(&fields)), Some(KvEvent::Stored(expected())));
    let (tag, nil) = (text("BlockStored"), NIL.to_vec());
    let positions =
        [tag, hashes.clone(), number(1), tokens, number(2), number(7), text("CPU"), text("a"), nil.clone()];
    assert_eq!(only(array(&positions)), Some(KvEvent::Stored(expected())));
    let removed = KvEvent::Removed(Removed { blocks: vec![2, 3], tier: StorageTier::Gpu, group: 4 });
    assert_eq!(only(array(&[text("BlockRemoved"), hashes, nil, number(4), number(9)])), Some(removed));
    assert_eq!(only(array(&[text("AllBlocksCleared")])), Some(KvEvent::Cleared));
}

#[test]
fn hashes_are_integers_with_or_without_a_sign_or_bytes() {
    let mut hashes = Vec::new();
    write_array_len(&mut hashes, 3).unwrap();
    write_uint(&mut hashes, u64::MAX).unwrap();
    write_sint(&mut hashes, -2).unwrap();
    write_bin(&mut hashes, &[9, 9, 0, 0, 0, 0, 0, 0, 1, 2]).unwrap();
    let event = map(&[("type", text("BlockRemoved")), ("block_hashes", hashes)]);
    let blocks = vec![u64::MAX, u64::MAX - 1, 0x102];
    assert_eq!(only(event), Some(KvEvent::Removed(Removed { blocks, tier: StorageTier::Gpu, group: 0 })));
}

fn stored(more: &[(&str, Vec<u8>)]) -> Option<KvEvent> {
    let fields = [("type", text("BlockStored")), ("block_hashes", list(&[2, 3])), ("block_size", number(2))];
    only(map(&[&fields[..], more].concat()))
}

#[test]
fn extra_keys_are_the_adapter_the_salt_and_what_else_a_block_depends_on() {
    let image = array(&[text("image"), number(3)]);
    let keys = array(&[array(&[text("a"), image.clone(), text("s")]), array(&[text("a")])]);
    let tokens = ("token_ids", list(&[10, 11, 12, 13]));
    let event = stored(&[tokens.clone(), ("lora_name", text("a")), ("extra_keys", keys)]);
    let Some(KvEvent::Stored(event)) = event else { panic!("{event:?}") };
    assert_eq!((event.adapter, event.salt), (Some(b"a".to_vec()), Some(b"s".to_vec())));
    assert_eq!([&event.blocks[0].extra, &event.blocks[1].extra], [&image, &Vec::new()]);
    let event = stored(&[tokens, ("cache_salt", text("t"))]);
    let Some(KvEvent::Stored(event)) = event else { panic!("{event:?}") };
    assert_eq!((event.adapter, event.salt), (None, Some(b"t".to_vec())));
}

#[test]
fn blocks_without_tokens_and_pairs_of_tokens_are_read_and_other_numbers_of_tokens_are_not() {
    let Some(KvEvent::Stored(event)) = stored(&[]) else { panic!("no tokens") };
    assert_eq!((event.block_size, event.tokens.len(), event.blocks.len()), (0, 0, 2));
    let pairs = array(&[list(&[10, 11]), list(&[11, 12]), list(&[12, 13]), number(13)]);
    let Some(KvEvent::Stored(event)) = stored(&[("token_ids", pairs)]) else { panic!("pairs") };
    assert_eq!(event.tokens, [10, 11, 12, 13]);
    assert_eq!(stored(&[("token_ids", list(&[10, 11, 12]))]), None);
    for kind in ["sliding_window", "mamba"] {
        let Some(KvEvent::Stored(event)) = stored(&[("kv_cache_spec_kind", text(kind))]) else { panic!() };
        assert!(!event.is_full_attention);
    }
}

#[test]
fn an_event_that_cannot_be_read_spoils_no_other() {
    let cleared = || map(&[("type", text("AllBlocksCleared"))]);
    let mut nil = Vec::new();
    write_nil(&mut nil).unwrap();
    let wrong = map(&[("type", text("BlockRemoved")), ("block_hashes", text("x"))]);
    let events = [map(&[("type", text("Later"))]), cleared(), wrong, nil, array(&[]), cleared()];
    let batch = Batch::read(&payload(&events)).unwrap();
    assert_eq!(batch, Batch { events: vec![KvEvent::Cleared, KvEvent::Cleared], unusable: 4 });
    for bytes in [&b""[..], b"x", &[0x93, 1], &[0x92, 1, 2], &payload(&[vec![0xc1]])] {
        assert_eq!(Batch::read(bytes), None, "{bytes:?}");
    }
}

#[test]
fn messages_of_too_many_blocks_are_refused() {
    let removed =
        |count: usize| map(&[("type", text("BlockRemoved")), ("block_hashes", list(&vec![7; count]))]);
    let half = removed(MAX_BLOCKS / 2);
    assert!(Batch::read(&payload(&[half.clone(), half.clone()])).is_some());
    assert_eq!(Batch::read(&payload(&[half.clone(), half, removed(1)])), None);
    let batch = Batch::read(&payload(&[removed(MAX_BLOCKS + 1)])).unwrap();
    assert_eq!(batch, Batch { events: Vec::new(), unusable: 1 });
}
