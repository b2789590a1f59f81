//! Cost of the prefixes of 100 servers with 400 000 cached tokens each, which compute 5 000 new tokens a
//! second each, in blocks of 16: processor time of the agent to read and apply their messages, and bytes to
//! each proxy, which reads every 100 ms.
//!
//! The aim is at most 1 MB/s. Messages are made as vLLM makes them: each with the blocks of one step, and
//! with one event for each block that was removed for them, the last one of the oldest prompt first.

use core::time::Duration;
use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use endpoint_picker_wire::Message;
use endpoint_picker_wire::prefixes::CachedPrefixes;
use metrics_agent_kv_events::batch::Batch;
use metrics_agent_kv_events::index::{CacheId, Index, KeyedModel, Limits};
use metrics_agent_kv_events::prefixes::readers::{
    FollowedEndpoints, PoolReaders, PrefixesRead, ReaderPosition,
};
use metrics_agent_kv_events::tokenizer::Tokenizer;
use metrics_agent_kv_events::tokenizer::vocabulary::{LeadingSpace, Vocabulary};
use rmp::encode;

const SERVERS: u8 = 100;
const BLOCK: usize = 16;
const CACHED_BLOCKS: usize = 400_000 / BLOCK;
const TOKENS_PER_SECOND: usize = 5_000;
const STEPS_PER_SECOND: usize = 10;
const BLOCKS_PER_STEP: usize = TOKENS_PER_SECOND.div_ceil(BLOCK * STEPS_PER_SECOND);
/// Steps in which a prompt is computed.
const PROMPT_STEPS: usize = 8;
const SECONDS: usize = 10;
const VOCABULARY: u32 = 50_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A server's cache, and the names of its blocks by prompt, the oldest first.
struct Server {
    id: CacheId,
    prompts: VecDeque<Vec<u64>>,
    blocks: usize,
}

/// Bytes and time of some steps.
#[derive(Default)]
struct Cost {
    received: usize,
    time: Duration,
}

fn main() -> Outcome<()> {
    // `cargo test --benches` runs benches without this argument, to see that they work.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let mut index = Index::new(Limits { blocks: usize::MAX, prefix_tokens: 64 });
    let model = model()?;
    let address = |number: u8| SocketAddr::from(([10, 0, 0, number], 8000));
    let mut servers: Vec<_> = (0..SERVERS)
        .map(|number| Server {
            id: index.add_cache(address(number), Some(Arc::clone(&model))),
            prompts: VecDeque::new(),
            blocks: 0,
        })
        .collect();
    let followed = FollowedEndpoints {
        addresses: (0..SERVERS).map(|number| (number.into(), address(number))).collect(),
        ..FollowedEndpoints::default()
    };
    let mut names = 1;
    for server in &mut servers {
        while server.blocks < CACHED_BLOCKS {
            server.step(&mut names, &mut index, &mut Cost::default())?;
        }
    }
    let mut reader = Proxy::default();
    reader.read(&mut index, &followed)?;
    let whole = core::mem::take(&mut reader.bytes);
    let (mut cost, mut reading) = (Cost::default(), Duration::ZERO);
    for _ in 0..SECONDS * STEPS_PER_SECOND {
        for server in &mut servers {
            server.step(&mut names, &mut index, &mut cost)?;
        }
        let started = Instant::now();
        reader.read(&mut index, &followed)?;
        reading += started.elapsed();
    }
    let per_second = |value: f64| value / SECONDS as f64;
    println!("servers  tokens/s  MB/s received  core  MB/s to a proxy  core for it  MB at first  RSS MiB");
    println!(
        "{SERVERS:7}  {:8}  {:13.3}  {:.3}  {:15.3}  {:11.4}  {:11.1}  {:7.0}",
        usize::from(SERVERS) * BLOCKS_PER_STEP * BLOCK * STEPS_PER_SECOND,
        per_second(cost.received as f64 / 1e6),
        per_second(cost.time.as_secs_f64()),
        per_second(reader.bytes as f64 / 1e6),
        per_second(reading.as_secs_f64()),
        whole as f64 / 1e6,
        resident_mib()?,
    );
    Ok(())
}

/// A model with tokens of four to six bytes.
fn model() -> Outcome<Arc<KeyedModel>> {
    let mut vocabulary = Vocabulary::new(LeadingSpace::Never);
    for id in 0..VOCABULARY {
        vocabulary.insert(id, format!(" {id:x}").as_bytes(), false).map_err(|error| error.to_string())?;
    }
    let empty = String::new();
    let tokenizer = Tokenizer {
        vocabulary,
        digest: 1,
        chat_template: empty.clone(),
        bos_token: empty.clone(),
        eos_token: empty,
        adds_bos: false,
        normalizes: false,
    };
    Ok(Arc::new(KeyedModel::new("model", Some(Arc::new(tokenizer)), false)))
}

impl Server {
    /// Computes some blocks, for which others are removed, and applies the message about it.
    fn step(&mut self, names: &mut u64, index: &mut Index, cost: &mut Cost) -> Outcome<()> {
        let blocks: Vec<_> = (*names..).take(BLOCKS_PER_STEP).collect();
        *names += BLOCKS_PER_STEP as u64;
        let is_full = self.prompts.back().is_none_or(|prompt| prompt.len() >= PROMPT_STEPS * BLOCKS_PER_STEP);
        let parent =
            if is_full { None } else { self.prompts.back().and_then(|prompt| prompt.last().copied()) };
        let mut removed = Vec::new();
        while self.blocks + BLOCKS_PER_STEP - removed.len() > CACHED_BLOCKS {
            let Some(oldest) = self.prompts.front_mut() else { break };
            match oldest.pop() {
                Some(block) => removed.push(block),
                None => drop(self.prompts.pop_front()),
            }
        }
        self.blocks = self.blocks + BLOCKS_PER_STEP - removed.len();
        let message = message(parent, &blocks, &removed)?;
        if is_full {
            self.prompts.push_back(Vec::new());
        }
        self.prompts.back_mut().ok_or("no prompt")?.extend(blocks);
        let started = Instant::now();
        let batch = Batch::read(&message).ok_or("unreadable")?;
        batch.events.iter().for_each(|event| index.apply(self.id, event, 0));
        cost.time += started.elapsed();
        cost.received += message.len();
        Ok(())
    }
}

/// The payload of a message.
fn message(parent: Option<u64>, stored: &[u64], removed: &[u64]) -> Outcome<Vec<u8>> {
    let length = |length: usize| u32::try_from(length);
    let mut out = Vec::new();
    encode::write_array_len(&mut out, 3)?;
    encode::write_f64(&mut out, 1.0)?;
    encode::write_array_len(&mut out, length(1 + removed.len())?)?;
    encode::write_map_len(&mut out, 6)?;
    for (name, value) in [("type", "BlockStored"), ("medium", "GPU")] {
        encode::write_str(&mut out, name)?;
        encode::write_str(&mut out, value)?;
    }
    encode::write_str(&mut out, "block_hashes")?;
    encode::write_array_len(&mut out, length(stored.len())?)?;
    stored.iter().try_for_each(|name| encode::write_u64(&mut out, hash(*name)))?;
    encode::write_str(&mut out, "parent_block_hash")?;
    match parent {
        Some(name) => encode::write_u64(&mut out, hash(name))?,
        None => encode::write_nil(&mut out)?,
    }
    encode::write_str(&mut out, "token_ids")?;
    encode::write_array_len(&mut out, length(stored.len() * BLOCK)?)?;
    for name in stored {
        for at in 0..BLOCK as u64 {
            let token = hash(name * BLOCK as u64 + at) % u64::from(VOCABULARY);
            encode::write_uint(&mut out, token)?;
        }
    }
    encode::write_str(&mut out, "block_size")?;
    encode::write_uint(&mut out, BLOCK as u64)?;
    for name in removed {
        encode::write_map_len(&mut out, 3)?;
        for (name, value) in [("type", "BlockRemoved"), ("medium", "GPU")] {
            encode::write_str(&mut out, name)?;
            encode::write_str(&mut out, value)?;
        }
        encode::write_str(&mut out, "block_hashes")?;
        encode::write_array_len(&mut out, 1)?;
        encode::write_u64(&mut out, hash(*name))?;
    }
    encode::write_uint(&mut out, 0)?;
    Ok(out)
}

/// Spreads numbers over 64 bits.
fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A proxy that follows all prefixes.
#[derive(Default)]
struct Proxy {
    readers: PoolReaders,
    position: Option<ReaderPosition>,
    bytes: usize,
}

impl Proxy {
    fn read(&mut self, index: &mut Index, followed: &FollowedEndpoints) -> Outcome<()> {
        while let PrefixesRead::Message(bytes) = self
            .readers
            .read(index.prefixes_mut(), followed.clone(), self.position, false, Duration::ZERO)
            .encode()
        {
            self.bytes += bytes.len();
            let message = CachedPrefixes::decode(&*bytes)?;
            self.position = Some(ReaderPosition { log: message.log, version: message.version });
        }
        Ok(())
    }
}

/// The memory of this process.
fn resident_mib() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("no such line")?;
    Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse::<f64>()? / 1024.0)
}
