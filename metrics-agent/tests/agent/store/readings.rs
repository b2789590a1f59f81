//! Agents that scrape for one another.

use core::time::Duration;
use std::time::Instant;

use metrics_agent::agent::Settings;
use metrics_agent::sharing::Share;
use metrics_agent::store::StoreAddress;

use super::model_server;
use super::server::Store;
use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

const INTERVAL: Duration = Duration::from_millis(200);

/// An agent that shares the readings of these servers.
async fn agent(url: &str, servers: &[&ScriptedServer], interval: Duration) -> Agent {
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    let share = Share::Store(StoreAddress::parse(url).unwrap());
    let mut settings = Settings { share, share_readings: true, ..scraping(&addresses) };
    settings.scrape.interval = interval;
    let agent = Agent::start(settings).await;
    agent
        .snapshot_where("its first readings", |snapshot| {
            snapshot.readings.len() == addresses.len()
                && snapshot.readings.iter().all(|it| it.waiting.is_some())
        })
        .await;
    agent
}

/// The endpoints that an agent scrapes for all.
async fn held(agent: &Agent) -> usize {
    let text = agent.metric("metrics_agent_scrape_leases").await.to_string();
    text.parse().unwrap()
}

/// The number of scrapes of a server in each interval from now on, over some intervals.
async fn scrapes_per_interval(server: &ScriptedServer, intervals: u32) -> f64 {
    let (before, began) = (server.requests(), Instant::now());
    tokio::time::sleep(INTERVAL * intervals).await;
    let took = began.elapsed().div_duration_f64(INTERVAL);
    (server.requests() - before) as f64 / took
}

/// Waits until exactly these agents together hold one lease for each server.
async fn until_each_is_scraped_by_one(agents: &[&Agent], servers: usize) {
    eventually("each server is scraped by one agent", async || {
        let mut all = 0;
        for agent in agents {
            all += held(agent).await;
        }
        (all == servers).then_some(())
    })
    .await;
}

#[tokio::test]
async fn three_agents_scrape_each_server_once_per_interval_and_all_have_its_readings() {
    let store = Store::start(&[]).await;
    let (first, second) = (model_server().await, model_server().await);
    let servers = [&first, &second];
    let one = agent(&store.url(), &servers, INTERVAL).await;
    let two = agent(&store.url(), &servers, INTERVAL).await;
    let three = agent(&store.url(), &servers, INTERVAL).await;
    until_each_is_scraped_by_one(&[&one, &two, &three], 2).await;
    for server in servers {
        let scrapes = scrapes_per_interval(server, 20).await;
        eprintln!("three agents: {scrapes:.2} scrapes per interval");
        assert!((0.7..1.2).contains(&scrapes), "{scrapes} scrapes per interval");
    }
    first.set_behaviour(Behaviour::Text(load(77, 2)));
    let changed = Instant::now();
    for agent in [&one, &two, &three] {
        agent.reading_where("the change", |reading| reading.waiting == Some(77)).await;
    }
    assert!(changed.elapsed() < 5 * INTERVAL, "{:?}", changed.elapsed());
    for agent in [&one, &two, &three] {
        let reading = agent.reading_where("a reading", |reading| reading.age_ms.is_some()).await;
        assert!(reading.age_ms.unwrap() < 700, "{reading:?}");
    }
    let shared = two.metric("metrics_agent_shared_readings_total").await;
    assert!(shared + three.metric("metrics_agent_shared_readings_total").await > 10.0);
    // One that starts has the readings without a scrape of its own.
    let before = scrapes_of(&one, &two, &three).await;
    let four = agent(&store.url(), &servers, INTERVAL).await;
    assert!(held(&four).await == 0 && before > 0.0);
    assert_eq!(four.metric("metrics_agent_scrapes_total").await.to_string(), "0");
}

async fn scrapes_of(one: &Agent, two: &Agent, three: &Agent) -> f64 {
    let mut all = 0.0;
    for agent in [one, two, three] {
        all += agent.metric("metrics_agent_scrapes_total").await;
    }
    all
}

#[tokio::test]
async fn another_agent_takes_over_within_three_intervals() {
    let interval = Duration::from_millis(500);
    let store = Store::start(&[]).await;
    let server = model_server().await;
    let mut agents = vec![agent(&store.url(), &[&server], interval).await];
    agents.push(agent(&store.url(), &[&server], interval).await);
    until_each_is_scraped_by_one(&[&agents[0], &agents[1]], 1).await;
    let holder = usize::from(held(&agents[0]).await != 1);
    let next = server.requests() + 1;
    eventually("a scrape of the holder", async || (server.requests() >= next).then_some(())).await;
    drop(agents.remove(holder));
    let (ended, before) = (Instant::now(), server.requests());
    eventually("a scrape", async || (server.requests() > before).then_some(())).await;
    let took = ended.elapsed();
    eprintln!("another agent took over after {took:?}, {:.2} intervals", took.div_duration_f64(interval));
    assert!(took < 3 * interval, "{took:?}");
    eventually("the other holds the lease", async || (held(&agents[0]).await == 1).then_some(())).await;
}

#[tokio::test]
async fn a_server_that_refuses_connections_is_unready_for_all_agents() {
    let store = Store::start(&[]).await;
    let mut server = model_server().await;
    let one = agent(&store.url(), &[&server], INTERVAL).await;
    let two = agent(&store.url(), &[&server], INTERVAL).await;
    until_each_is_scraped_by_one(&[&one, &two], 1).await;
    server.stop().await;
    for agent in [&one, &two] {
        agent.reading_where("it is not ready", |reading| !reading.ready).await;
    }
    server.resume().await;
    for agent in [&one, &two] {
        agent.reading_where("it is ready again", |reading| reading.ready).await;
    }
}

#[tokio::test]
async fn without_the_store_each_agent_scrapes_for_itself_until_it_is_back() {
    let mut store = Store::start(&[]).await;
    let server = model_server().await;
    let one = agent(&store.url(), &[&server], INTERVAL).await;
    let two = agent(&store.url(), &[&server], INTERVAL).await;
    until_each_is_scraped_by_one(&[&one, &two], 1).await;
    store.kill();
    eventually("both agents scrape", async || (scrapes_per_interval(&server, 5).await > 1.7).then_some(()))
        .await;
    for agent in [&one, &two] {
        agent.reading_where("fresh readings", |reading| reading.age_ms.is_some_and(|age| age < 500)).await;
    }
    store.restart().await;
    eventually("one agent scrapes", async || (scrapes_per_interval(&server, 10).await < 1.3).then_some(()))
        .await;
    // A store that does not answer keeps no agent from scraping.
    store.set_stopped(true);
    eventually("both agents scrape", async || (scrapes_per_interval(&server, 5).await > 1.7).then_some(()))
        .await;
    store.set_stopped(false);
}
