//! Batches of requests: the input is the body of a `POST /v1/batch` to a running agent, and the parts of
//! another one, a path and a body on each line.
//!
//! The agent refuses a body or has a response to each part, and none of them is an error of the agent.
#![no_main]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{LazyLock, Mutex};

use clap::Parser;
use endpoint_picker_wire::batch::{Batch, Part, Responses};
use endpoint_picker_wire::{BATCH_FORMAT, MAX_BATCH_PARTS, Message, OTHER_FORMAT_STATUS};
use libfuzzer_sys::fuzz_target;
use metrics_agent::agent::{self, Listeners};
use metrics_agent::flags::Flags;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// A connection to an agent in this process, whose only model server refuses connections.
static AGENT: LazyLock<Mutex<BufReader<TcpStream>>> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let api = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = api.local_addr().expect("an address");
    let settings = Flags::parse_from(["metrics-agent", "--endpoint", "127.0.0.1:1"]).settings();
    let settings = settings.expect("good flags");
    std::thread::spawn(move || {
        let listeners = Listeners { api, health: None, extension: None };
        runtime
            .block_on(agent::run(settings, listeners, CancellationToken::new()))
            .expect("an agent that runs");
    });
    Mutex::new(BufReader::new(TcpStream::connect(address).expect("an agent that listens")))
});

fuzz_target!(|input: &[u8]| {
    let parts = match Batch::decode(input) {
        Ok(batch) if batch.format == BATCH_FORMAT => Ok(batch.parts.len()),
        Ok(_) => Err(OTHER_FORMAT_STATUS),
        Err(_) => Err(400),
    };
    check(input, parts);
    let part = |line: &[u8]| {
        let mut words = line.splitn(2, |byte| *byte == b' ');
        let path = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        Part { path, body: words.next().map(<[u8]>::to_vec) }
    };
    let parts: Vec<_> = input.split(|byte| *byte == b'\n').map(part).collect();
    let count = parts.len();
    check(&Batch { format: BATCH_FORMAT, parts }.encode_to_vec(), Ok(count));
});

/// Sends a body with this number of parts, or one that the agent refuses with this status.
fn check(body: &[u8], parts: Result<usize, u16>) {
    let (status, response) = post(body);
    let parts = parts.and_then(|parts| if parts <= MAX_BATCH_PARTS { Ok(parts) } else { Err(400) });
    assert_eq!(status, parts.err().unwrap_or(200));
    let Ok(parts) = parts else { return };
    let responses = Responses::decode(response.as_slice()).expect("responses").responses;
    assert_eq!(responses.len(), parts);
    for response in responses {
        // 503: the agent has no snapshot yet.
        assert!(matches!(response.status, 200..=499 | 503), "{}", response.status);
    }
}

/// The status and the body of the response to a batch.
fn post(body: &[u8]) -> (u16, Vec<u8>) {
    let mut agent = AGENT.lock().expect("no panic before");
    let head = format!(
        "POST /v1/batch HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    agent.get_mut().write_all(&[head.as_bytes(), body].concat()).expect("a connection that stays");
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        agent.read_line(&mut line).expect("a line of the head");
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().expect("a status");
        } else if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a length");
        } else if line.is_empty() {
            break;
        }
    }
    let mut response = vec![0; length];
    agent.read_exact(&mut response).expect("the whole body");
    (status, response)
}
