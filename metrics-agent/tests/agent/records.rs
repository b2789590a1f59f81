//! Records of finished requests: the lines of the entries that proxies send, and the files.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use endpoint_picker_wire::record::{RecordOutcome, RecordedRequest, Records};
use endpoint_picker_wire::{Message, OTHER_FORMAT_STATUS, RECORD_FORMAT, decode};
use metrics_agent::agent::Settings;
use metrics_agent::record::RecordSettings;
use serde_json::Value;

use crate::harness::{Agent, eventually, get, scraping};
use crate::reports::post_for_bytes;
use crate::scripted::{Behaviour, ScriptedServer, load};

const KIND: &str = "application/x-protobuf";
const PATH: &str = "/v1/pools/default/records";

fn record(folder: &Path) -> RecordSettings {
    RecordSettings { folder: folder.to_owned(), sample: 1.0, max_bytes: 1 << 20, key: None }
}

/// An agent that records, and its server.
async fn start(record: Option<RecordSettings>) -> (Agent, ScriptedServer) {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let agent = Agent::start(Settings { record, ..scraping(&[server.address()]) }).await;
    agent.reading_where("a reading", |reading| reading.waiting == Some(3)).await;
    (agent, server)
}

/// A request that was decided when the message was made: none is older than the record.
fn entry(session: u64, blocks: &[u64]) -> RecordedRequest {
    RecordedRequest {
        at_us: 5_000_000,
        model: "m".to_owned(),
        session: Some(session),
        tenant: Some(session),
        input_tokens: 100,
        output_tokens: 7,
        max_output_tokens: Some(9),
        cached_tokens: Some(64),
        block_tokens: 64,
        blocks: blocks.to_vec(),
        endpoint: vec![10, 0, 0, 1, 0x1f, 0x40],
        why: "picked".to_owned(),
        first_token_us: Some(20_900),
        end_us: 60_000,
        outcome: RecordOutcome::Served.into(),
        ..RecordedRequest::default()
    }
}

fn message(requests: Vec<RecordedRequest>) -> Vec<u8> {
    Records { format: RECORD_FORMAT, now_us: 5_000_000, requests }.encode_to_vec()
}

async fn send(agent: &Agent, requests: Vec<RecordedRequest>) {
    let (status, _) = post_for_bytes(agent, PATH, KIND, &message(requests)).await;
    assert_eq!(status, 204);
}

/// Requests by their outcome in the agent's metrics.
async fn counted(agent: &Agent, outcome: &str) -> u64 {
    let metrics = get(agent.address, "/metrics").await.unwrap().text();
    let name = format!("metrics_agent_recorded_requests_total{{outcome=\"{outcome}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// The files of the record, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The header and the lines of a file.
fn lines(file: &Path) -> (Value, Vec<Value>) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with(r#"{"record":"endpoint-picker/1","#), "{text}");
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

/// Waits until this number of requests is written.
async fn written(agent: &Agent, requests: u64) {
    eventually("the lines are written", async || (counted(agent, "written").await >= requests).then_some(()))
        .await;
}

fn is_hash(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 16 && text.bytes().all(|it| it.is_ascii_hexdigit()))
}

#[tokio::test]
async fn entries_become_lines_with_keyed_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let (agent, _server) = start(Some(record(folder.path()))).await;
    let snapshot = decode(&get(agent.address, "/v1/pools/default/snapshot").await.unwrap().body).unwrap();
    let sample = snapshot.topology.unwrap().policy.unwrap().record.unwrap();
    assert_eq!(sample.limit, u64::MAX);
    send(
        &agent,
        vec![entry(1, &[11, 12]), entry(2, &[11, 13]), RecordedRequest { tenant: None, ..entry(1, &[]) }],
    )
    .await;
    written(&agent, 3).await;
    let [file] = &files(folder.path())[..] else { panic!("one file") };
    let name = file.file_name().unwrap().to_str().unwrap();
    let time = name.strip_prefix("default-").and_then(|name| name.strip_suffix(".jsonl"));
    assert!(time.is_some_and(|time| time.len() == 13 && time.parse::<u64>().is_ok()), "{name}");
    let (header, lines) = lines(file);
    assert_eq!((&header["record"], &header["block_tokens"]), (&"endpoint-picker/1".into(), &64.into()));
    assert!(header["started"].as_u64().unwrap() > 1_700_000_000_000);
    let [first, second, third] = &lines[..] else { panic!("{lines:?}") };
    let expected = serde_json::json!({
        "timestamp": first["timestamp"], "pool": "default", "model": "m", "session": first["session"],
        "tenant": first["tenant"], "input_length": 100, "output_length": 7, "max_output_length": 9,
        "cached_tokens": 64, "hash_ids": first["hash_ids"], "endpoint": "10.0.0.1:8000", "why": "picked",
        "first_token_ms": 20.9, "end_ms": 60.0, "outcome": "served",
    });
    assert_eq!(*first, expected);
    assert!(is_hash(&first["session"]) && is_hash(&first["tenant"]) && first["session"] != first["tenant"]);
    assert_eq!((&first["session"], third.get("tenant")), (&third["session"], None));
    assert_ne!(first["session"], second["session"]);
    let blocks = |line: &Value| -> Vec<u64> {
        line["hash_ids"].as_array().unwrap().iter().map(|block| block.as_u64().unwrap()).collect()
    };
    assert_eq!((blocks(first)[0], third.get("hash_ids")), (blocks(second)[0], None));
    assert_ne!(blocks(first)[1], blocks(second)[1]);
    assert!(blocks(first).iter().all(|&block| block < 1 << 53 && block != 11 && block != 12));
}

#[tokio::test]
async fn records_of_one_key_can_be_joined_and_others_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "00112233445566778899aabbccddeeff\n").unwrap();
    let mut seen = Vec::new();
    for (run, key) in [Some(&key), Some(&key), None, None].into_iter().enumerate() {
        let of_run = folder.path().join(format!("{run}/records"));
        let settings = RecordSettings { key: key.cloned(), ..record(&of_run) };
        let (agent, _server) = start(Some(settings)).await;
        send(&agent, vec![entry(1, &[11])]).await;
        written(&agent, 1).await;
        let (_, lines) = lines(&files(&of_run)[0]);
        let snapshot = decode(&get(agent.address, "/v1/pools/default/snapshot").await.unwrap().body).unwrap();
        let sample = snapshot.topology.unwrap().policy.unwrap().record.unwrap();
        let line = lines.into_iter().next().unwrap();
        seen.push((line["session"].clone(), line["hash_ids"].clone(), sample.key));
    }
    assert_eq!(seen[0], seen[1]);
    for (one, other) in [(0, 2), (2, 3)] {
        assert!(seen[one].0 != seen[other].0 && seen[one].1 != seen[other].1 && seen[one].2 != seen[other].2);
    }
}

#[tokio::test]
async fn files_are_bounded_and_the_oldest_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let max_bytes = 1 << 16;
    let stranger = folder.path().join("default-notes.txt");
    std::fs::write(&stranger, "x").unwrap();
    let mut count = 0;
    for _ in 0..2 {
        let settings = RecordSettings { max_bytes, ..record(folder.path()) };
        let (agent, _server) = start(Some(settings)).await;
        for _ in 0..4 {
            let entries =
                (0..100).map(|number| RecordedRequest { output_tokens: count + number, ..entry(1, &[11]) });
            send(&agent, entries.collect()).await;
            count += 100;
        }
        written(&agent, 400).await;
    }
    let records: Vec<PathBuf> = files(folder.path()).into_iter().filter(|file| *file != stranger).collect();
    let bytes: u64 = records.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!((max_bytes / 2..=max_bytes + 4096).contains(&bytes) && records.len() > 4, "{bytes}");
    let kept: Vec<u64> = records
        .iter()
        .flat_map(|file| lines(file).1)
        .map(|line| line["output_length"].as_u64().unwrap())
        .collect();
    assert_eq!(kept.last(), Some(&(count - 1)));
    assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1), "the newest, without a gap");
    assert!(kept[0] > 0 && stranger.exists());
}

#[tokio::test]
async fn a_file_comes_last_also_where_the_clock_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let in_an_hour = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() + 3_600_000;
    std::fs::write(folder.path().join(format!("default-{in_an_hour}.jsonl")), "x").unwrap();
    let (agent, _server) = start(Some(record(folder.path()))).await;
    send(&agent, vec![entry(1, &[11])]).await;
    written(&agent, 1).await;
    let files = files(folder.path());
    assert_eq!((files.len(), lines(&files[1]).1.len()), (2, 1));
}

#[tokio::test]
async fn a_message_that_cannot_be_read_or_is_not_wanted_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (agent, _server) = start(Some(record(folder.path()))).await;
    let post = async |path: &str, kind: &str, body: &[u8]| post_for_bytes(&agent, path, kind, body).await.0;
    assert_eq!(post(PATH, KIND, b"\xff\xff").await, 400);
    assert_eq!(post(PATH, "text/plain", &message(vec![])).await, 415);
    let other = Records { format: 2, ..Records::default() }.encode_to_vec();
    assert_eq!(post(PATH, KIND, &other).await, OTHER_FORMAT_STATUS);
    assert_eq!(post("/v1/pools/other/records", KIND, &message(vec![])).await, 404);
    assert_eq!(post(PATH, KIND, &vec![0; (4 << 20) + 1]).await, 413);
    let impossible = RecordedRequest { at_us: u64::MAX, ..entry(1, &[]) };
    assert_eq!(post(PATH, KIND, &message(vec![impossible])).await, 204);
    assert_eq!((counted(&agent, "refused").await, counted(&agent, "written").await), (1, 0));
    for settings in [None, Some(RecordSettings { sample: 0.0, ..record(folder.path()) })] {
        let (agent, _server) = start(settings).await;
        let (status, body) = post_for_bytes(&agent, PATH, KIND, &message(vec![])).await;
        assert_eq!(status, 404, "{}", String::from_utf8_lossy(&body));
        let snapshot = decode(&get(agent.address, "/v1/pools/default/snapshot").await.unwrap().body).unwrap();
        assert_eq!(snapshot.topology.unwrap().policy.unwrap().record, None);
    }
}

#[tokio::test]
async fn after_an_error_the_record_goes_on_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records");
    let (agent, _server) = start(Some(record(&records))).await;
    std::fs::remove_dir(&records).unwrap();
    let post = async || post_for_bytes(&agent, PATH, KIND, &message(vec![entry(1, &[])])).await;
    eventually("a request is dropped", async || {
        assert_eq!(post().await.0, 204);
        (counted(&agent, "dropped").await > 0).then_some(())
    })
    .await;
    std::fs::create_dir(&records).unwrap();
    eventually("a request is written", async || {
        assert_eq!(post().await.0, 204);
        (counted(&agent, "written").await > 0).then_some(())
    })
    .await;
    assert_eq!(files(&records).len(), 1);
}
