//! Restarts of model servers, as readings show them.

use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

fn since(metric: &str, value: f64) -> Behaviour {
    Behaviour::Text(format!("{}# TYPE {metric} gauge\n{metric} {value:?}\n", load(1, 1)))
}

#[tokio::test]
async fn a_restart_shows_as_a_new_start_time_and_two_agents_agree_on_it() {
    let server = ScriptedServer::start(since("process_start_time_seconds", 1_795_179_084.5)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("the start time", |r| r.cached_since_ms == Some(1_795_179_084_500)).await;
    server.set_behaviour(since("process_start_time_seconds", 1_795_179_990.0));
    agent.reading_where("the next start time", |r| r.cached_since_ms == Some(1_795_179_990_000)).await;
    let other = Agent::start(scraping(&[server.address()])).await;
    other.reading_where("the same", |r| r.cached_since_ms == Some(1_795_179_990_000)).await;
}

#[tokio::test]
async fn a_counter_that_decreased_is_a_restart() {
    let server = ScriptedServer::start(since("vllm:prompt_tokens_total", 700.0)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let first = agent.reading_where("a reading", |r| r.waiting == Some(1)).await;
    assert_eq!(first.cached_since_ms, None);
    server.set_behaviour(since("vllm:prompt_tokens_total", 3.0));
    let since = agent.reading_where("a restart", |r| r.cached_since_ms.is_some()).await.cached_since_ms;
    let scrapes = server.requests();
    eventually("several scrapes", async || (server.requests() > scrapes + 3).then_some(())).await;
    assert_eq!(agent.reading_where("a reading", |_| true).await.cached_since_ms, since, "one restart");
}

#[tokio::test]
async fn a_server_without_a_start_time_that_was_unreachable_has_restarted() {
    let mut server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("a reading", |r| r.waiting == Some(1) && r.cached_since_ms.is_none()).await;
    server.stop().await;
    agent.reading_where("not ready", |r| !r.ready).await;
    server.resume().await;
    agent.reading_where("a restart", |r| r.ready && r.cached_since_ms.is_some()).await;
}
