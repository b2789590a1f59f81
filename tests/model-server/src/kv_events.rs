//! Publishers of KV-cache events over ZeroMQ, as vLLM has them: a PUB socket for new messages, and a ROUTER
//! socket for replays.
//!
//! The tokens of their model are the bytes of ASCII text, so the blocks of a text are its bytes.

use super::port::{BACKLOG, bind, bind_released};
use super::state::lock;
use anyhow::{Context, Result};
use rmp::encode::{
    ValueWriteError, write_array_len, write_bool, write_f64, write_map_len, write_nil, write_str, write_uint,
};
use serde_json::{Map, Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use xxhash_rust::xxh64::xxh64;

/// Tokens of a block.
const BLOCK: usize = 16;

const TOPIC: &[u8] = b"kv@topic";

/// A publisher. Its messages are numbered from 0, and a replay has all of them.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    events: SocketAddr,
    replay: SocketAddr,
    /// Empty while it is stopped.
    serving: Vec<AbortOnDropHandle<()>>,
    /// Its ports while it is stopped.
    held: Vec<TcpSocket>,
}

/// The state that its connections read.
#[derive(Debug)]
struct Shared {
    /// The payload of each message.
    published: watch::Sender<Vec<Vec<u8>>>,
    /// Numbers that are sent to no subscriber.
    lost: Mutex<Vec<usize>>,
    subscriptions: AtomicUsize,
    /// The number of replays that fail.
    failing_replays: AtomicUsize,
}

impl Publisher {
    /// Starts a publisher on free ports of loopback.
    pub fn start() -> Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let held = vec![bind(any)?, bind(any)?];
        let shared = Shared {
            published: watch::Sender::new(Vec::new()),
            lost: Mutex::default(),
            subscriptions: AtomicUsize::new(0),
            failing_replays: AtomicUsize::new(0),
        };
        let (events, replay) = (held[0].local_addr()?, held[1].local_addr()?);
        let mut publisher = Self { shared: Arc::new(shared), events, replay, serving: Vec::new(), held };
        publisher.listen()?;
        Ok(publisher)
    }

    /// The address of new messages.
    pub fn events(&self) -> SocketAddr {
        self.events
    }

    /// The address of replays.
    pub fn replay(&self) -> SocketAddr {
        self.replay
    }

    /// Publishes a message for each of these payloads.
    pub fn publish(&self, payloads: &[Vec<u8>]) {
        self.shared.published.send_modify(|published| published.extend_from_slice(payloads));
    }

    /// Publishes a message with these events.
    ///
    /// # Panics
    ///
    /// When a text or a list of an event has more than four billion members.
    pub fn publish_events(&self, events: &[Value]) {
        let mut payload = Vec::new();
        encode(&json!([0.5, events, 0]), &mut payload).expect("a vector takes all bytes");
        self.publish(&[payload]);
    }

    /// Messages with these numbers are sent to no subscriber.
    pub fn lose(&self, numbers: impl IntoIterator<Item = usize>) {
        lock(&self.shared.lost).extend(numbers);
    }

    /// This number of replays fails from now on.
    pub fn fail_replays(&self, count: usize) {
        self.shared.failing_replays.store(count, Ordering::SeqCst);
    }

    /// The subscriptions so far.
    pub fn subscriptions(&self) -> usize {
        self.shared.subscriptions.load(Ordering::SeqCst)
    }

    /// Ends all connections; from now on the kernel refuses connections.
    pub async fn stop(&mut self) -> Result<()> {
        for serving in self.serving.drain(..) {
            serving.abort();
            // It ends by the abort.
            let _ = serving.await;
        }
        for address in [self.events, self.replay] {
            self.held.push(bind_released(address).await?);
        }
        Ok(())
    }

    /// Takes connections again after [`Self::stop`].
    pub fn listen(&mut self) -> Result<()> {
        let mut sockets = self.held.drain(..);
        let (events, replay) = sockets.next().zip(sockets.next()).context("the publisher listens already")?;
        drop(sockets);
        let shared = Arc::clone(&self.shared);
        self.serving.push(serve(events, move |stream| send_new(stream, Arc::clone(&shared)))?);
        let shared = Arc::clone(&self.shared);
        self.serving.push(serve(replay, move |stream| send_again(stream, Arc::clone(&shared)))?);
        Ok(())
    }

    /// Ends as a process does, and starts as another one at the same ports, which has published nothing.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.shared.published.send_modify(Vec::clear);
        lock(&self.shared.lost).clear();
        self.shared.subscriptions.store(0, Ordering::SeqCst);
        self.listen()
    }
}

/// The response of vLLM's `GET /kv_event_sources`, with a publisher for each rank.
pub(crate) fn sources(publishers: &[&Publisher]) -> Value {
    let source = |publisher: &Publisher| {
        let port = |address: SocketAddr| format!("tcp://*:{}", address.port());
        let (events, replay) = (port(publisher.events), port(publisher.replay));
        json!({"publisher": "zmq", "endpoint": events, "replay_endpoint": replay, "topic": ""})
    };
    let ranks = publishers.iter().enumerate();
    ranks.map(|(rank, publisher)| (rank.to_string(), source(publisher))).collect::<Map<_, _>>().into()
}

/// The event that a cache has stored all whole blocks of a text. A block has the hash of the text up to its
/// end.
pub fn stored(text: &str) -> Value {
    let hashes: Vec<u64> = hashes(text).collect();
    let tokens = text.get(..hashes.len() * BLOCK).unwrap_or_default().as_bytes();
    json!({
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": null,
        "token_ids": tokens,
        "block_size": BLOCK,
    })
}

/// The event that it has removed them.
pub fn removed(text: &str) -> Value {
    json!({"type": "BlockRemoved", "block_hashes": hashes(text).collect::<Vec<u64>>()})
}

/// The event that it is empty.
pub fn cleared() -> Value {
    json!({"type": "AllBlocksCleared"})
}

fn hashes(text: &str) -> impl Iterator<Item = u64> {
    let ends = (BLOCK..=text.len()).step_by(BLOCK);
    ends.map(|end| xxh64(text.as_bytes().get(..end).unwrap_or_default(), 0))
}

/// A `tokenizer.json` whose tokens are the bytes of ASCII text.
pub fn tokenizer() -> Value {
    let printable = (33..=126_u8).map(|byte| (char::from(byte).to_string(), byte));
    let vocabulary = printable.chain([("\u{120}".to_owned(), b' '), ("\u{10a}".to_owned(), b'\n')]);
    let vocabulary: Map<String, Value> = vocabulary.map(|(text, id)| (text, id.into())).collect();
    json!({"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}})
}

/// Writes a value as MessagePack.
fn encode(value: &Value, bytes: &mut Vec<u8>) -> Result<(), ValueWriteError> {
    let length = |length: usize| u32::try_from(length).expect("less than 4 GB");
    match value {
        Value::Null => write_nil(bytes).map_err(ValueWriteError::InvalidMarkerWrite)?,
        Value::Bool(value) => write_bool(bytes, *value).map_err(ValueWriteError::InvalidMarkerWrite)?,
        Value::Number(number) => match number.as_u64() {
            Some(number) => {
                write_uint(bytes, number)?;
            }
            None => write_f64(bytes, number.as_f64().unwrap_or_default())?,
        },
        Value::String(text) => write_str(bytes, text)?,
        Value::Array(items) => {
            write_array_len(bytes, length(items.len()))?;
            items.iter().try_for_each(|item| encode(item, bytes))?;
        }
        Value::Object(members) => {
            write_map_len(bytes, length(members.len()))?;
            for (name, value) in members {
                write_str(bytes, name)?;
                encode(value, bytes)?;
            }
        }
    }
    Ok(())
}

/// Serves each connection until dropped.
fn serve<F>(
    socket: TcpSocket,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> Result<AbortOnDropHandle<()>>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener: TcpListener = socket.listen(BACKLOG).context("listen")?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream));
        }
    })))
}

/// The greeting of a peer, and the READY command of a socket of this kind.
///
/// # Panics
///
/// When the name of the kind is longer than the names of ZeroMQ's sockets.
pub async fn shake_hands(stream: &mut TcpStream, kind: &str) -> io::Result<()> {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).await?;
    stream.read_exact(&mut greeting).await?;
    let length = u8::try_from(kind.len()).expect("names of sockets are short");
    let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[length][..], kind.as_bytes()].concat();
    let flags = [4, u8::try_from(ready.len()).expect("as above")];
    stream.write_all(&[&flags, &ready[..]].concat()).await?;
    frame(stream).await?;
    Ok(())
}

/// The body of the next frame of less than 256 bytes.
async fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut body = vec![0; head[1].into()];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// A message of frames of any length.
pub fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        bytes.push(2 | u8::from(at + 1 < frames.len()));
        bytes.extend((frame.len() as u64).to_be_bytes());
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// Sends what is published from the subscription on.
async fn send_new(mut stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    shake_hands(&mut stream, "PUB").await?;
    let subscription = frame(&mut stream).await?;
    assert_eq!(subscription, [1], "a subscription to all topics");
    let mut published = shared.published.subscribe();
    let mut next = published.borrow_and_update().len();
    shared.subscriptions.fetch_add(1, Ordering::SeqCst);
    while published.changed().await.is_ok() {
        let messages = published.borrow_and_update().get(next..).unwrap_or_default().to_vec();
        for (number, payload) in (next..).zip(&messages) {
            if !lock(&shared.lost).contains(&number) {
                let sequence = (number as u64).to_be_bytes();
                stream.write_all(&message(&[TOPIC, &sequence, payload])).await?;
            }
        }
        next += messages.len();
    }
    Ok(())
}

async fn send_again(mut stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let is_failing = |left: usize| left.checked_sub(1);
    if shared.failing_replays.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_failing).is_ok() {
        return Ok(());
    }
    shake_hands(&mut stream, "ROUTER").await?;
    assert!(frame(&mut stream).await?.is_empty(), "the delimiter of a request");
    let from = frame(&mut stream).await?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    let from = u64::from_be_bytes(from);
    let messages = shared.published.borrow().clone();
    for (number, payload) in (0_u64..).zip(&messages).skip_while(|(number, _)| *number < from) {
        stream.write_all(&message(&[b"", TOPIC, &number.to_be_bytes(), payload])).await?;
    }
    stream.write_all(&message(&[b"", b"", &[0xff; 8], b""])).await
}
