//! The events of one message of a model server.
//!
//! A message is `[time, events, rank]`. An event is a map with its `type` and its fields, or, of older servers, an array of the type and the
//! fields in a fixed order. Other fields and types are ignored, and an event that cannot be read spoils no other.

use super::msgpack::{Malformed, Value, Values};

/// A server's name of a block, 64 bits. Servers write it as an integer with or without a sign, or as bytes, the last eight of which count.
pub type BlockHash = u64;

/// The events of one message, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events that change what the server has cached.
    pub events: Vec<Event>,
    /// Events of other types, and those that cannot be read or used.
    pub unusable: usize,
}

/// A change of what a server has cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were stored.
    Stored(Stored),
    /// Blocks were removed.
    Removed(Removed),
    /// All blocks were removed.
    Cleared,
}

/// Blocks that were stored, each the parent of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The block before the first one; `None`: the first one begins a prompt.
    pub parent: Option<BlockHash>,
    /// At least one.
    pub blocks: Vec<Block>,
    /// Tokens of each block; 0: the event has no tokens, as of blocks that move to a lower tier.
    pub block_size: usize,
    /// The tokens of all blocks.
    pub tokens: Vec<u32>,
    /// Where they were stored.
    pub tier: Tier,
    /// The group of KV caches of a hybrid model.
    pub group: u32,
    /// Whether a block of the group is of use for every later token, and not only for tokens nearby.
    pub is_full_attention: bool,
    /// The LoRA adapter.
    pub adapter: Option<Vec<u8>>,
    /// The salt of a prompt; only the event with a prompt's first block has it.
    pub salt: Option<Vec<u8>>,
}

/// A stored block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The server's name of the block, which depends on all blocks before it.
    pub hash: BlockHash,
    /// Further keys that distinguish the block, such as images, in the server's encoding; empty: none.
    pub extra: Vec<u8>,
}

/// Blocks that were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The blocks.
    pub blocks: Vec<BlockHash>,
    /// From where.
    pub tier: Tier,
    /// The group of KV caches.
    pub group: u32,
}

/// Where a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The accelerator's memory.
    Gpu,
    /// The host's memory.
    Cpu,
    /// Disks and remote storage.
    Storage,
}

impl Tier {
    /// All tiers, the fastest first.
    pub const ALL: [Self; 3] = [Self::Gpu, Self::Cpu, Self::Storage];

    /// The value of a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Storage => "storage",
        }
    }

    /// As in vLLM and SGLang; without a name the accelerator's memory.
    fn of(medium: Option<&[u8]>) -> Self {
        match medium {
            None | Some(b"" | b"GPU") => Self::Gpu,
            Some(name) if name.starts_with(b"CPU") => Self::Cpu,
            Some(_) => Self::Storage,
        }
    }
}

/// Kinds of KV caches whose blocks are of no use for every later token.
const LIMITED_KINDS: [&[u8]; 6] = [
    b"sliding_window",
    b"sliding_window_mla",
    b"mamba",
    b"chunked_local_attention",
    b"encoder_only_attention",
    b"cross_attention",
];

impl Batch {
    /// Reads the payload of a message; `None`: it is not a list of events.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut values = Values::new(payload);
        let Ok(Value::Array(2..)) = values.next() else { return None };
        values.whole().ok()?;
        let Ok(Value::Array(count)) = values.next() else { return None };
        let mut batch = Self::default();
        for _ in 0..count {
            let event = values.whole().ok()?;
            match Fields::of(event).and_then(|fields| fields.event()) {
                Ok(Some(event)) => batch.events.push(event),
                Ok(None) | Err(Malformed) => batch.unusable += 1,
            }
        }
        Some(batch)
    }
}

/// The fields of an event that count, as their bytes.
#[derive(Default)]
struct Fields<'a> {
    kind: &'a [u8],
    hashes: Option<&'a [u8]>,
    parent: Option<&'a [u8]>,
    tokens: Option<&'a [u8]>,
    block_size: Option<&'a [u8]>,
    medium: Option<&'a [u8]>,
    adapter: Option<&'a [u8]>,
    extra_keys: Option<&'a [u8]>,
    group: Option<&'a [u8]>,
    spec_kind: Option<&'a [u8]>,
    salt: Option<&'a [u8]>,
}

/// The fields of events that are arrays, after the type.
const STORED_ORDER: [&[u8]; 10] = [
    b"block_hashes",
    b"parent_block_hash",
    b"token_ids",
    b"block_size",
    b"lora_id",
    b"medium",
    b"lora_name",
    b"extra_keys",
    b"group_idx",
    b"kv_cache_spec_kind",
];
const REMOVED_ORDER: [&[u8]; 3] = [b"block_hashes", b"medium", b"group_idx"];

impl<'a> Fields<'a> {
    fn of(event: &'a [u8]) -> Result<Self, Malformed> {
        let mut values = Values::new(event);
        let mut fields = Self::default();
        match values.next()? {
            Value::Map(count) => {
                for _ in 0..count {
                    let Value::Text(name) = values.next()? else { return Err(Malformed) };
                    fields.set(name, values.whole()?)?;
                }
            }
            Value::Array(count @ 1..) => {
                fields.set(b"type", values.whole()?)?;
                let order: &[&[u8]] =
                    if fields.kind == b"BlockStored" { &STORED_ORDER } else { &REMOVED_ORDER };
                for name in order.iter().take(count as usize - 1) {
                    fields.set(name, values.whole()?)?;
                }
            }
            _ => return Err(Malformed),
        }
        Ok(fields)
    }

    fn set(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Malformed> {
        let field = match name {
            b"type" => {
                self.kind = text(Some(value))?.ok_or(Malformed)?;
                return Ok(());
            }
            b"block_hashes" => &mut self.hashes,
            b"parent_block_hash" => &mut self.parent,
            b"token_ids" => &mut self.tokens,
            b"block_size" => &mut self.block_size,
            b"medium" => &mut self.medium,
            b"lora_name" => &mut self.adapter,
            b"extra_keys" => &mut self.extra_keys,
            b"group_idx" => &mut self.group,
            b"kv_cache_spec_kind" => &mut self.spec_kind,
            b"cache_salt" => &mut self.salt,
            _ => return Ok(()),
        };
        *field = Some(value);
        Ok(())
    }

    /// The event; `None`: it is of another type, or has another number of tokens than its blocks.
    fn event(&self) -> Result<Option<Event>, Malformed> {
        let event = match self.kind {
            b"BlockStored" => self.stored()?.map(Event::Stored),
            b"BlockRemoved" => Some(Event::Removed(Removed {
                blocks: self.hashes()?,
                tier: self.tier()?,
                group: self.group()?,
            })),
            b"AllBlocksCleared" => Some(Event::Cleared),
            _ => None,
        };
        Ok(event)
    }

    fn stored(&self) -> Result<Option<Stored>, Malformed> {
        let (hashes, tokens) = (self.hashes()?, self.tokens()?);
        let adapter = text(self.adapter)?;
        let block_size = number(self.block_size)?.filter(|_| !tokens.is_empty()).unwrap_or(0) as usize;
        if hashes.is_empty() || block_size.checked_mul(hashes.len()) != Some(tokens.len()) {
            return Ok(None);
        }
        let mut extra = ExtraKeys::read(self.extra_keys, adapter)?;
        extra.blocks.resize_with(hashes.len(), Vec::new);
        let blocks = hashes.into_iter().zip(extra.blocks).map(|(hash, extra)| Block { hash, extra });
        let own_salt = text(self.salt)?.map(<[u8]>::to_vec);
        Ok(Some(Stored {
            parent: self.parent.map(hash).transpose()?.flatten(),
            blocks: blocks.collect(),
            block_size,
            tokens,
            tier: self.tier()?,
            group: self.group()?,
            is_full_attention: !text(self.spec_kind)?.is_some_and(|kind| LIMITED_KINDS.contains(&kind)),
            adapter: adapter.map(<[u8]>::to_vec),
            salt: own_salt.or(extra.salt),
        }))
    }

    fn hashes(&self) -> Result<Vec<BlockHash>, Malformed> {
        let mut values = Values::new(self.hashes.ok_or(Malformed)?);
        let Value::Array(count) = values.next()? else { return Err(Malformed) };
        (0..count).map(|_| hash(values.whole()?)?.ok_or(Malformed)).collect()
    }

    /// The tokens. With speculation in SGLang a token is the first of a pair.
    fn tokens(&self) -> Result<Vec<u32>, Malformed> {
        let Some(bytes) = self.tokens else { return Ok(Vec::new()) };
        let mut values = Values::new(bytes);
        let count = match values.next()? {
            Value::Array(count) => count,
            Value::Nil => 0,
            _ => return Err(Malformed),
        };
        let mut tokens = Vec::with_capacity(bytes.len().min(count as usize));
        for _ in 0..count {
            let token = match values.next()? {
                Value::Array(2) => {
                    let token = values.next()?;
                    values.whole()?;
                    token
                }
                token => token,
            };
            let Value::Unsigned(token) = token else { return Err(Malformed) };
            tokens.push(u32::try_from(token).map_err(|_| Malformed)?);
        }
        Ok(tokens)
    }

    fn tier(&self) -> Result<Tier, Malformed> {
        text(self.medium).map(Tier::of)
    }

    fn group(&self) -> Result<u32, Malformed> {
        number(self.group).map(Option::unwrap_or_default)
    }
}

/// The extra keys of blocks, without the name of the adapter.
#[derive(Default)]
struct ExtraKeys {
    salt: Option<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
}

impl ExtraKeys {
    /// Reads a list for each block, or nil. Its first text is the adapter if it is the adapter's name, and another text is the salt.
    fn read(bytes: Option<&[u8]>, adapter: Option<&[u8]>) -> Result<Self, Malformed> {
        let mut keys = Self::default();
        let Some(bytes) = bytes else { return Ok(keys) };
        let mut values = Values::new(bytes);
        let Value::Array(blocks) = values.next()? else { return Ok(keys) };
        for _ in 0..blocks {
            let mut own = Vec::new();
            let Value::Array(count) = values.next()? else {
                keys.blocks.push(own);
                continue;
            };
            for at in 0..count {
                let key = values.whole()?;
                match Values::new(key).next()? {
                    Value::Text(name) if at == 0 && Some(name) == adapter => {}
                    Value::Text(salt) => keys.salt = Some(salt.to_vec()),
                    _ => own.extend_from_slice(key),
                }
            }
            keys.blocks.push(own);
        }
        Ok(keys)
    }
}

/// A hash; `None` for nil.
fn hash(bytes: &[u8]) -> Result<Option<BlockHash>, Malformed> {
    match Values::new(bytes).next()? {
        Value::Nil => Ok(None),
        Value::Unsigned(hash) => Ok(Some(hash)),
        Value::Negative(hash) => Ok(Some(hash.cast_unsigned())),
        Value::Bytes(bytes) => {
            let last = bytes.last_chunk::<8>().ok_or(Malformed)?;
            Ok(Some(BlockHash::from_be_bytes(*last)))
        }
        Value::Text(_) | Value::Array(_) | Value::Map(_) | Value::Other => Err(Malformed),
    }
}

/// A text; `None` for nil, and if it is absent.
fn text(bytes: Option<&[u8]>) -> Result<Option<&[u8]>, Malformed> {
    match bytes.map(|bytes| Values::new(bytes).next()).transpose()? {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Malformed),
    }
}

/// A number of 32 bits; `None` for nil, and if it is absent.
fn number(bytes: Option<&[u8]>) -> Result<Option<u32>, Malformed> {
    match bytes.map(|bytes| Values::new(bytes).next()).transpose()? {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Unsigned(number)) => u32::try_from(number).map(Some).map_err(|_| Malformed),
        Some(_) => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use rmp::encode::{
        write_array_len, write_bin, write_map_len, write_nil, write_sint, write_str, write_uint,
    };

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
            tier: Tier::Cpu,
            group: 0,
            is_full_attention: true,
            adapter: Some(b"a".to_vec()),
            salt: None,
        }
    }

    /// The only event of a batch.
    fn only(event: Vec<u8>) -> Option<Event> {
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
        assert_eq!(only(map(&fields)), Some(Event::Stored(expected())));
        let (tag, nil) = (text("BlockStored"), NIL.to_vec());
        let positions = [
            tag,
            hashes.clone(),
            number(1),
            tokens,
            number(2),
            number(7),
            text("CPU"),
            text("a"),
            nil.clone(),
        ];
        assert_eq!(only(array(&positions)), Some(Event::Stored(expected())));
        let removed = Event::Removed(Removed { blocks: vec![2, 3], tier: Tier::Gpu, group: 4 });
        assert_eq!(only(array(&[text("BlockRemoved"), hashes, nil, number(4), number(9)])), Some(removed));
        assert_eq!(only(array(&[text("AllBlocksCleared")])), Some(Event::Cleared));
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
        assert_eq!(only(event), Some(Event::Removed(Removed { blocks, tier: Tier::Gpu, group: 0 })));
    }

    fn stored(more: &[(&str, Vec<u8>)]) -> Option<Event> {
        let fields =
            [("type", text("BlockStored")), ("block_hashes", list(&[2, 3])), ("block_size", number(2))];
        only(map(&[&fields[..], more].concat()))
    }

    #[test]
    fn extra_keys_are_the_adapter_the_salt_and_what_else_a_block_depends_on() {
        let image = array(&[text("image"), number(3)]);
        let keys = array(&[array(&[text("a"), image.clone(), text("s")]), array(&[text("a")])]);
        let tokens = ("token_ids", list(&[10, 11, 12, 13]));
        let event = stored(&[tokens.clone(), ("lora_name", text("a")), ("extra_keys", keys)]);
        let Some(Event::Stored(event)) = event else { panic!("{event:?}") };
        assert_eq!((event.adapter, event.salt), (Some(b"a".to_vec()), Some(b"s".to_vec())));
        assert_eq!([&event.blocks[0].extra, &event.blocks[1].extra], [&image, &Vec::new()]);
        let event = stored(&[tokens, ("cache_salt", text("t"))]);
        let Some(Event::Stored(event)) = event else { panic!("{event:?}") };
        assert_eq!((event.adapter, event.salt), (None, Some(b"t".to_vec())));
    }

    #[test]
    fn blocks_without_tokens_and_pairs_of_tokens_are_read_and_other_numbers_of_tokens_are_not() {
        let Some(Event::Stored(event)) = stored(&[]) else { panic!("no tokens") };
        assert_eq!((event.block_size, event.tokens.len(), event.blocks.len()), (0, 0, 2));
        let pairs = array(&[list(&[10, 11]), list(&[11, 12]), list(&[12, 13]), number(13)]);
        let Some(Event::Stored(event)) = stored(&[("token_ids", pairs)]) else { panic!("pairs") };
        assert_eq!(event.tokens, [10, 11, 12, 13]);
        assert_eq!(stored(&[("token_ids", list(&[10, 11, 12]))]), None);
        for kind in ["sliding_window", "mamba"] {
            let Some(Event::Stored(event)) = stored(&[("kv_cache_spec_kind", text(kind))]) else { panic!() };
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
        assert_eq!(batch, Batch { events: vec![Event::Cleared, Event::Cleared], unusable: 4 });
        for bytes in [&b""[..], b"x", &[0x93, 1], &[0x92, 1, 2], &payload(&[vec![0xc1]])] {
            assert_eq!(Batch::read(bytes), None, "{bytes:?}");
        }
    }
}
