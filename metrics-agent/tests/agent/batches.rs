//! Batches: several requests of a proxy in one.

use std::net::SocketAddr;

use endpoint_picker_wire::batch::{Batch, Part, Response, Responses};
use endpoint_picker_wire::changes::Feed;
use endpoint_picker_wire::{BATCH_FORMAT, MAX_BATCH_PARTS, Message, OTHER_FORMAT_STATUS, decode};
use metrics_agent::api::access::credentials::Files;
use tokio::time::timeout;

use crate::changes::sync;
use crate::harness::{Agent, NO_WAIT_DEADLINE, scraping};
use crate::reports::{post_for_bytes, post_to};
use crate::rights;
use crate::scripted::{Behaviour, ScriptedServer};

const PATH: &str = "/v1/batch";
const PROTOBUF: &str = "application/x-protobuf";
const SNAPSHOT: &str = "/v1/pools/default/snapshot";
const CHANGES: &str = "/v1/pools/default/changes";

fn get(path: &str) -> Part {
    Part { path: path.to_owned(), body: None }
}

fn post(path: &str, body: Vec<u8>) -> Part {
    Part { path: path.to_owned(), body: Some(body) }
}

fn batch(parts: Vec<Part>) -> Vec<u8> {
    Batch { format: BATCH_FORMAT, parts }.encode_to_vec()
}

fn responses((status, body): (u16, Vec<u8>)) -> Vec<Response> {
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let Responses { format, responses } = Responses::decode(body.as_slice()).unwrap();
    assert_eq!(format, BATCH_FORMAT);
    responses
}

/// The responses of an agent on this host to these parts.
async fn send(agent: &Agent, parts: Vec<Part>) -> Vec<Response> {
    responses(post_for_bytes(agent, PATH, PROTOBUF, &batch(parts)).await)
}

/// An agent with one endpoint whose first scrape hangs, so that no further snapshot is published.
async fn quiet_agent() -> (Agent, ScriptedServer) {
    let server = ScriptedServer::start(Behaviour::Hang).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.snapshot_where("a snapshot", |_| true).await;
    (agent, server)
}

#[tokio::test]
async fn each_part_has_the_response_that_it_would_have_by_itself() {
    let (agent, _server) = quiet_agent().await;
    let sync = sync(7, &[], None).encode_to_vec();
    let parts = vec![
        get(SNAPSHOT),
        post(CHANGES, sync),
        get("/v1/pools/other/snapshot"),
        post("/v1/pools/default/report", b"not a report".to_vec()),
        get("/v1/pools/default/snapshot?wait=1"),
        get("/v1/batch"),
        get("/metrics"),
        get("not a path"),
        get(SNAPSHOT),
    ];
    let responses = send(&agent, parts).await;
    let statuses: Vec<u32> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [200, 200, 404, 400, 400, 404, 404, 400, 200]);
    assert_eq!(decode(&responses[0].body).unwrap().topology.unwrap().pool, "default");
    assert!(Feed::decode(responses[1].body.as_slice()).unwrap().position.is_some());
    assert!(String::from_utf8_lossy(&responses[2].body).contains("no such pool"));
}

#[tokio::test]
async fn a_poll_in_a_batch_does_not_wait_for_a_newer_version() {
    let (agent, _server) = quiet_agent().await;
    let has = agent.snapshot("").await.unwrap();
    let versions = format!("topology={}&readings={}", has.topology_version, has.readings_version);
    let path = format!("{SNAPSHOT}?{versions}&wait_ms=30000");
    let responses = timeout(NO_WAIT_DEADLINE, send(&agent, vec![get(&path), get(SNAPSHOT)])).await;
    let responses = responses.expect("a batch that does not wait");
    let statuses: Vec<u32> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [204, 200]);
}

#[tokio::test]
async fn a_batch_that_cannot_be_read_is_refused_with_what_is_allowed() {
    let (agent, _server) = quiet_agent().await;
    let other_format = Batch { format: BATCH_FORMAT + 1, parts: Vec::new() }.encode_to_vec();
    let too_many = batch(vec![get(SNAPSHOT); MAX_BATCH_PARTS + 1]);
    for (body, status, reason) in [
        (b"\xff".to_vec(), 400, "the batch is malformed"),
        (other_format, OTHER_FORMAT_STATUS, "this agent reads format 1"),
        (too_many, 400, "at most 256 are allowed"),
        (vec![0; (8 << 20) + 1], 413, "larger than the allowed 8388608 bytes"),
    ] {
        let (found, answer) = post_for_bytes(&agent, PATH, PROTOBUF, &body).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(found == status && answer.contains(reason), "{found}: {answer}");
    }
    assert_eq!(post_for_bytes(&agent, PATH, "text/plain", &batch(Vec::new())).await.0, 415);
    assert_eq!(send(&agent, vec![get(SNAPSHOT); MAX_BATCH_PARTS]).await.len(), MAX_BATCH_PARTS);
}

#[tokio::test]
async fn a_part_needs_the_rights_of_its_own_path() {
    let (agent, _server) = rights::start(Files::default()).await;
    let parts = || vec![get(SNAPSHOT), post(CHANGES, sync(7, &[], None).encode_to_vec())];
    let outer = SocketAddr::new(rights::outer_address(), agent.address.port());
    for (address, statuses) in [(outer, [200, 403]), (agent_on_loopback(&agent), [200, 200])] {
        let responses = responses(post_to(address, PATH, PROTOBUF, &batch(parts())).await);
        let found: Vec<u32> = responses.iter().map(|response| response.status).collect();
        assert_eq!(found, statuses, "{address}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (agent, _server) = rights::start(rights::files(folder.path())).await;
    assert_eq!(post_to(agent_on_loopback(&agent), PATH, PROTOBUF, &batch(parts())).await.0, 401);
}

fn agent_on_loopback(agent: &Agent) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], agent.address.port()))
}
