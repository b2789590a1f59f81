//! Stores that do not respond for a while.
//!
//! They are away for six seconds. A minute differs in nothing but the number of messages: what waits is
//! bounded by 4 MiB, which a unit test checks, and connections are tried at least every two seconds.

use core::time::Duration;
use std::collections::BTreeMap;
use std::time::Instant;

use endpoint_picker_harness::gate::Gate;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::changes::Position;

use super::server::Store;
use super::{agent, model_server};
use crate::changes::{send, sync};
use crate::harness::{Agent, eventually, get};
use crate::process::{logs, signal, start};
use crate::reports::post_to;

/// How long a store is away: longer than a write may take, and a read.
const AWAY: Duration = Duration::from_secs(6);

/// A proxy that sends a numbered message with each sync, and counts what it reads.
struct Proxy<'a> {
    agent: &'a Agent,
    sender: u64,
    sent: usize,
    positions: Vec<Position>,
    read: BTreeMap<String, usize>,
}

impl<'a> Proxy<'a> {
    fn new(agent: &'a Agent, sender: u64) -> Self {
        let (positions, read) = (Vec::new(), BTreeMap::new());
        Self { agent, sender, sent: 0, positions, read }
    }

    async fn sync(&mut self) {
        self.sent += 1;
        // The messages are few, and the test ends soon.
        let text: &'static str = format!("{}-{}", self.sender, self.sent).leak();
        let (position, deliveries) = send(self.agent, &sync(self.sender, &self.positions, Some(text))).await;
        self.positions = vec![position];
        for (text, _) in deliveries {
            *self.read.entry(text).or_default() += 1;
        }
    }

    /// How often its agent has failed to write to the store, or to read from it.
    async fn failures(&self) -> f64 {
        self.agent.metric("metrics_agent_store_failures_total").await
    }

    /// Whether it has read all messages of another proxy up to this number.
    fn has_read(&self, other: u64, number: usize) -> bool {
        (1..=number).all(|number| self.read.contains_key(&format!("{other}-{number}")))
    }
}

/// Lets two proxies of two agents exchange for a while.
async fn sync_for(one: &mut Proxy<'_>, two: &mut Proxy<'_>, time: Duration) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let began = Instant::now();
    while began.elapsed() < time {
        ticks.tick().await;
        one.sync().await;
        two.sync().await;
    }
}

/// Cuts the way to the store and heals it. Afterwards both proxies have all messages of each other, each
/// once.
async fn is_away_and_back(one: &Agent, two: &Agent, set_away: impl Fn(bool)) {
    let (mut one, mut two) = (Proxy::new(one, 1), Proxy::new(two, 2));
    sync_for(&mut one, &mut two, Duration::from_secs(1)).await;
    let sent = [one.sent, two.sent];
    eventually("both share", async || {
        sync_for(&mut one, &mut two, Duration::ZERO).await;
        one.sync().await;
        two.sync().await;
        (one.has_read(2, sent[1]) && two.has_read(1, sent[0])).then_some(())
    })
    .await;
    set_away(true);
    let before = [one.read.len(), two.read.len()];
    let (begun, failures) = ([one.sent, two.sent], [one.failures().await, two.failures().await]);
    sync_for(&mut one, &mut two, AWAY).await;
    assert!(one.read.len() < before[0] + 20 && two.read.len() < before[1] + 20, "nothing passes");
    for (proxy, (begun, failures)) in [&one, &two].into_iter().zip(begun.into_iter().zip(failures)) {
        // A sync that waited for the store would end with a failure of it.
        let (syncs, failures) = (proxy.sent - begun, proxy.failures().await - failures);
        assert!(syncs as f64 > 2.0 * failures, "{syncs} syncs, {failures} failures of the store");
    }
    set_away(false);
    let sent = [one.sent, two.sent];
    eventually("both have all messages of each other", async || {
        one.sync().await;
        two.sync().await;
        (one.has_read(2, sent[1]) && two.has_read(1, sent[0])).then_some(())
    })
    .await;
    sync_for(&mut one, &mut two, Duration::from_secs(1)).await;
    for proxy in [&one, &two] {
        // Only messages that the agent had written when the store stopped, and without a response, are
        // written twice.
        let repeated = proxy.read.values().filter(|&&times| times > 1).count();
        assert!(repeated <= 64, "{repeated} messages were read twice");
        assert!(proxy.read.values().all(|&times| times <= 2));
    }
}

#[tokio::test]
async fn after_a_store_did_not_answer_all_agree_without_a_burst_of_replays() {
    let store = Store::start(&[]).await;
    let server = model_server().await;
    let one = agent("default", &store.url(), &server).await;
    let two = agent("default", &store.url(), &server).await;
    is_away_and_back(&one, &two, |is_away| store.set_stopped(is_away)).await;
}

#[tokio::test]
async fn after_one_agent_did_not_reach_the_store_all_agree_without_a_burst_of_replays() {
    let store = Store::start(&[]).await;
    let gate = Gate::start(store.address()).await.unwrap();
    let server = model_server().await;
    let one = agent("default", &store.url(), &server).await;
    let two = agent("default", &format!("redis://{}", gate.address()), &server).await;
    is_away_and_back(&one, &two, |is_away| gate.set_open(!is_away)).await;
}

#[tokio::test]
async fn a_full_store_takes_messages_again_when_it_has_room() {
    let store = Store::start(&[]).await;
    let server = model_server().await;
    let one = agent("default", &store.url(), &server).await;
    let two = agent("default", &store.url(), &server).await;
    let (mut first, mut second) = (Proxy::new(&one, 1), Proxy::new(&two, 2));
    sync_for(&mut first, &mut second, Duration::from_millis(500)).await;
    assert!(store.command("CONFIG SET maxmemory 1").await.starts_with("+OK"));
    sync_for(&mut first, &mut second, Duration::from_secs(2)).await;
    assert!(one.metric("metrics_agent_store_failures_total").await > 0.5);
    assert!(one.metric("metrics_agent_store_failures_total").await < 20.0, "pauses between them grow");
    assert!(store.command("CONFIG SET maxmemory 0").await.starts_with("+OK"));
    let sent = [first.sent, second.sent];
    eventually("both have all messages of each other", async || {
        first.sync().await;
        second.sync().await;
        (first.has_read(2, sent[1]) && second.has_read(1, sent[0])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_full_store_is_logged_once_and_shortly_however_many_messages_it_refuses() {
    let store = Store::start(&[]).await;
    let server = model_server().await;
    let endpoint = server.address().to_string();
    let flags = ["--listen", "127.0.0.1:0", "--endpoint", &endpoint, "--share", &store.url()];
    let (child, address) = start(&flags).await;
    let count = async |name: &str| {
        let text = get(address, "/metrics").await.ok()?.text();
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<f64>().ok()
    };
    assert!(store.command("CONFIG SET maxmemory 1").await.starts_with("+OK"));
    eventually("many messages are refused several times", async || {
        let message = sync(1, &[], Some("a message")).encode_to_vec();
        post_to(address, "/v1/pools/default/changes", "application/x-protobuf", &message).await;
        (count("metrics_agent_store_failures_total").await? >= 4.0).then_some(())
    })
    .await;
    signal(&child, "TERM").await;
    let (_, log) = logs(child).await;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("changes are not exchanged")).collect();
    let [line] = lines.as_slice() else { panic!("{log}") };
    assert!(line.contains("OOM") && line.len() < 500, "{line}");
    assert!(!log.contains("exchanged with the store again"), "{log}");
}
