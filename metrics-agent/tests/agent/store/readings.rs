//! Agents that scrape for one another, as all agents with one store do.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use metrics_agent::agent::Settings;
use metrics_agent::sharing::Share;
use metrics_agent::store::StoreAddress;

use super::server::Store;
use super::{model_server, until_read};
use crate::changes::{send, sync};
use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

const INTERVAL: Duration = Duration::from_millis(200);

/// An agent that shares the readings of these servers.
async fn agent(url: &str, servers: &[&ScriptedServer], interval: Duration) -> Agent {
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    agent_of(url, &addresses, interval).await
}

/// The same with servers at these addresses.
async fn agent_of(url: &str, addresses: &[SocketAddr], interval: Duration) -> Agent {
    let share = Share::Store(StoreAddress::parse(url).unwrap());
    let mut settings = Settings { share, ..scraping(addresses) };
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
    scrapes_per(INTERVAL, server, intervals).await
}

/// The same with intervals of this length.
async fn scrapes_per(interval: Duration, server: &ScriptedServer, intervals: u32) -> f64 {
    let (before, began) = (server.requests(), Instant::now());
    tokio::time::sleep(interval * intervals).await;
    let took = began.elapsed().div_duration_f64(interval);
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
        // Without leases three.
        assert!(scrapes < 1.5, "{scrapes} scrapes per interval");
    }
    first.set_behaviour(Behaviour::Text(load(77, 2)));
    for agent in [&one, &two, &three] {
        agent.reading_where("the change", |reading| reading.waiting == Some(77)).await;
        agent.reading_where("a fresh reading", |reading| reading.age_ms.is_some_and(|age| age < 700)).await;
    }
    let shared = two.metric("metrics_agent_shared_readings_total").await;
    assert!(shared + three.metric("metrics_agent_shared_readings_total").await > 10.0);
}

/// Waits until these agents hold a lease for each endpoint, each agent 0.5 to 1.5 times the mean. Returns the
/// number of leases of each.
async fn until_shares_are_even(agents: &[Agent], endpoints: usize) -> Vec<usize> {
    let even = endpoints as f64 / agents.len() as f64;
    eventually("even shares", async || {
        let mut shares = Vec::new();
        for agent in agents {
            shares.push(held(agent).await);
        }
        let is_even = |share: &usize| (0.5..1.5).contains(&(*share as f64 / even));
        (shares.iter().sum::<usize>() == endpoints && shares.iter().all(is_even)).then_some(shares)
    })
    .await
}

#[tokio::test]
async fn each_agent_scrapes_about_as_many_servers_also_when_one_comes_or_goes() {
    // With this number, a share outside these bounds has a probability below 1 in 1000.
    const ENDPOINTS: u8 = 200;
    let interval = Duration::from_secs(1);
    let store = Store::start(&[]).await;
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let server = ScriptedServer::start_on(any, Behaviour::Text(load(3, 1))).await;
    let at = |n| SocketAddr::from((Ipv4Addr::new(127, 0, 1, n), server.address().port()));
    let addresses: Vec<_> = (1..=ENDPOINTS).map(at).collect();
    let mut agents = vec![agent_of(&store.url(), &addresses, interval).await];
    until_shares_are_even(&agents, addresses.len()).await;
    for count in [2, 4, 3] {
        while agents.len() < count {
            agents.push(agent_of(&store.url(), &addresses, interval).await);
        }
        agents.truncate(count);
        let shares = until_shares_are_even(&agents, addresses.len()).await;
        eprintln!("{count} agents have {shares:?} endpoints");
        let scrapes = scrapes_per(interval, &server, 4).await;
        // Without leases 400 and more.
        assert!(scrapes < 300.0, "{scrapes} scrapes of 200 endpoints per interval");
    }
}

#[tokio::test]
async fn another_agent_takes_over() {
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
    let before = server.requests();
    eventually("a scrape", async || (server.requests() > before).then_some(())).await;
    eventually("the other holds the lease", async || (held(&agents[0]).await == 1).then_some(())).await;
}

#[tokio::test]
async fn a_lease_that_does_not_expire_and_a_stream_with_the_last_number_stop_no_scrapes() {
    let store = Store::start(&[]).await;
    let server = model_server().await;
    let one = agent(&store.url(), &[&server], INTERVAL).await;
    let two = agent(&store.url(), &[&server], INTERVAL).await;
    until_each_is_scraped_by_one(&[&one, &two], 1).await;
    let keys = store.command("KEYS endpoint-picker/scrapes/*").await;
    let lease = keys.lines().find(|line| line.starts_with("endpoint-picker/scrapes/")).unwrap();
    assert_eq!(store.command(&format!("SET {lease} another")).await, "+OK\r\n");
    let scrapes = server.requests();
    eventually("it is scraped", async || (server.requests() > scrapes + 5).then_some(())).await;
    let left = store.command(&format!("PTTL {lease}")).await;
    assert!(!left.starts_with(":-"), "the lease expires again: {left}");

    let last = format!("{0}-{0}", u64::MAX);
    store.add("endpoint-picker/readings/{default}", &last, "r", b"any").await;
    server.set_behaviour(Behaviour::Text(load(77, 2)));
    for agent in [&one, &two] {
        agent.reading_where("the change", |reading| reading.waiting == Some(77)).await;
    }
    eventually("one agent scrapes for both", async || {
        (scrapes_per_interval(&server, 10).await < 1.3).then_some(())
    })
    .await;
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
async fn a_user_that_may_take_no_leases_stops_no_scrapes_and_no_changes() {
    let user = [
        "--user",
        "picker",
        "on",
        ">secret",
        "~endpoint-picker/*",
        "+@all",
        "-eval",
        "--user",
        "default",
        "off",
    ];
    let store = Store::start(&user).await;
    let server = model_server().await;
    let url = format!("redis://picker:secret@{}", store.address());
    let one = agent(&url, &[&server], INTERVAL).await;
    let two = agent(&url, &[&server], INTERVAL).await;
    server.set_behaviour(Behaviour::Text(load(77, 2)));
    for agent in [&one, &two] {
        agent.reading_where("a reading of its own", |reading| reading.waiting == Some(77)).await;
        assert!(agent.metric("metrics_agent_scrape_lease_failures_total").await > 0.5);
        assert_eq!(held(agent).await, 0);
    }
    send(&two, &sync(2, &[], None)).await;
    send(&one, &sync(1, &[], Some("from one"))).await;
    until_read(&two, 2, "from one").await;
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
    // A store that does not respond keeps no agent from scraping.
    store.set_stopped(true);
    eventually("both agents scrape", async || (scrapes_per_interval(&server, 5).await > 1.7).then_some(()))
        .await;
    store.set_stopped(false);
}
