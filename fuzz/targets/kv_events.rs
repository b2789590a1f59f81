//! KV-cache events: the input is a connection of ZMTP, and the payload of a message.
//!
//! The parts of a connection do not depend on how it is split. Any events of caches with prefixes of both
//! forms leave the index within its limit, and without its caches it is empty.
#![no_main]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use metrics_agent_kv_events::batch::Batch;
use metrics_agent_kv_events::index::{Index, IndexTotals, KeyedModel, Limits};
use metrics_agent_kv_events::sequence::{KvMessage, Sequence};
use metrics_agent_kv_events::tokenizer::Tokenizer;
use metrics_agent_kv_events::zmtp::{Decoder, ReceivedPart, ZmtpError};

/// Maximum number of blocks of the index.
const MAX_BLOCKS: usize = 64;

/// The model of a recorded server.
static MODEL: LazyLock<Arc<KeyedModel>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../metrics-agent/tests/captures/kv-events/tiny-model");
    let tokenizer = Tokenizer::read(Path::new(folder)).expect("the recorded tokenizer");
    Arc::new(KeyedModel::new("tiny", Some(Arc::new(tokenizer)), true))
});

fuzz_target!(|input: &[u8]| {
    let whole = parts(input, usize::MAX);
    assert_eq!(parts(input, 7), whole, "in chunks");
    let mut sequence = Sequence::new(input.len().is_multiple_of(2));
    let mut index = Index::new(Limits { blocks: MAX_BLOCKS, prefix_tokens: 16 });
    let address = |server: u8| SocketAddr::from(([10, 0, 0, server], 8000));
    let caches = [1, 2].map(|server| index.add_cache(address(server), Some(Arc::clone(&MODEL))));
    let mut payloads = vec![(0, input.to_vec().into())];
    for part in whole.0 {
        let ReceivedPart::Message(frames) = part else { continue };
        let Some(message) = KvMessage::of(&frames) else { continue };
        sequence.published(&message);
        sequence.replayed(&message);
        payloads.push((message.sequence as usize, message.payload));
    }
    for (now, (cache, payload)) in (0..).zip(payloads) {
        let Some(batch) = Batch::read(&payload) else { continue };
        for event in &batch.events {
            index.apply(caches[cache % 2], event, now);
            assert!(index.totals().blocks <= MAX_BLOCKS);
        }
    }
    for cache in caches {
        index.remove_cache(cache);
    }
    let IndexTotals { blocks, nodes, orphans, prefixes, evicted: _ } = index.totals();
    assert!(blocks == 0 && nodes == 0 && prefixes == 0 && orphans <= MAX_BLOCKS);
});

/// The parts of a connection whose bytes arrive in chunks of this length, and the error that ends it.
fn parts(bytes: &[u8], chunk: usize) -> (Vec<ReceivedPart>, Option<ZmtpError>) {
    let (mut decoder, mut parts) = (Decoder::default(), Vec::new());
    for chunk in bytes.chunks(chunk) {
        decoder.received.extend_from_slice(chunk);
        loop {
            match decoder.next_part() {
                Ok(Some(part)) => parts.push(part),
                Ok(None) => break,
                Err(error) => return (parts, Some(error)),
            }
        }
    }
    (parts, None)
}
