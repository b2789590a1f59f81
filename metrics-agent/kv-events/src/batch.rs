//! The events of one message of a model server.
//!
//! A message is `[time, events, rank]`. An event is a map with its `type` and its fields, or, of older
//! servers, an array of the type and the fields in a fixed order. Other fields and types are ignored, and an
//! event that cannot be read spoils no other.

use super::event::{Block, BlockHash, KvEvent, Removed, StorageTier, Stored};
use super::msgpack::{Malformed, Value, Values};

/// The events of one message, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events that change the server's KV cache.
    pub events: Vec<KvEvent>,
    /// Events of other types, and those that cannot be read or used.
    pub unusable: usize,
}

/// Maximum number of blocks of a message, with its events without blocks. A block of one byte takes some 60
/// bytes once it is read. A million tokens have 62 500 blocks of 16.
const MAX_BLOCKS: usize = 1 << 18;

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
    /// Reads the payload of a message; `None`: it is not a list of events, or has too many blocks.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut values = Values::new(payload);
        let Ok(Value::Array(2..)) = values.next() else { return None };
        values.whole().ok()?;
        let Ok(Value::Array(count)) = values.next() else { return None };
        let mut batch = Self::default();
        let mut blocks = 0;
        for _ in 0..count {
            let event = values.whole().ok()?;
            match EventFields::of(event).and_then(|fields| fields.event()) {
                Ok(Some(event)) => {
                    blocks += match &event {
                        KvEvent::Stored(stored) => stored.blocks.len(),
                        KvEvent::Removed(removed) => removed.blocks.len().max(1),
                        KvEvent::Cleared => 1,
                    };
                    if blocks > MAX_BLOCKS {
                        return None;
                    }
                    batch.events.push(event);
                }
                Ok(None) | Err(Malformed) => batch.unusable += 1,
            }
        }
        Some(batch)
    }
}

/// The fields of an event that count, as their bytes.
#[derive(Default)]
struct EventFields<'a> {
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

impl<'a> EventFields<'a> {
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
    fn event(&self) -> Result<Option<KvEvent>, Malformed> {
        let event = match self.kind {
            b"BlockStored" => self.stored()?.map(KvEvent::Stored),
            b"BlockRemoved" => Some(KvEvent::Removed(Removed {
                blocks: self.hashes()?,
                tier: self.tier()?,
                group: self.group()?,
            })),
            b"AllBlocksCleared" => Some(KvEvent::Cleared),
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
        let mut extra = ExtraKeys::read(self.extra_keys, adapter, hashes.len())?;
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
        if count as usize > MAX_BLOCKS {
            return Err(Malformed);
        }
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

    /// The tier, as vLLM and SGLang name it; without a name the accelerator's memory.
    fn tier(&self) -> Result<StorageTier, Malformed> {
        let tier = match text(self.medium)? {
            None | Some(b"" | b"GPU") => StorageTier::Gpu,
            Some(name) if name.starts_with(b"CPU") => StorageTier::Cpu,
            Some(_) => StorageTier::Storage,
        };
        Ok(tier)
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
    /// Reads a list, or nil, for each block, and ignores those after the first `max`. Its first text is the
    /// adapter if it is the adapter's name, and another text is the salt.
    fn read(bytes: Option<&[u8]>, adapter: Option<&[u8]>, max: usize) -> Result<Self, Malformed> {
        let mut keys = Self::default();
        let Some(bytes) = bytes else { return Ok(keys) };
        let mut values = Values::new(bytes);
        let Value::Array(blocks) = values.next()? else { return Ok(keys) };
        for _ in 0..max.min(blocks as usize) {
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
mod tests;
