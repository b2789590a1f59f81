//! Agents that exchange changes through a real store, Redis or Valkey.

mod kinds;
mod partition;
mod readings;
mod server;
mod sharing;

use endpoint_picker_wire::changes::Position;
use metrics_agent::agent::Settings;
use metrics_agent::sharing::Share;
use metrics_agent::store::StoreAddress;

use crate::changes::{send, sync};
use crate::harness::{Agent, eventually, options_for, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

async fn model_server() -> ScriptedServer {
    ScriptedServer::start(Behaviour::Text(load(3, 1))).await
}

/// An agent with one pool of this name and one model server.
async fn agent(pool: &str, url: &str, server: &ScriptedServer) -> Agent {
    agent_with(pool, StoreAddress::parse(url).unwrap(), server).await
}

/// The same with any kind of store.
async fn agent_with(pool: &str, store: StoreAddress, server: &ScriptedServer) -> Agent {
    let share = Share::Store(store);
    let agent =
        Agent::start(Settings { share, options: options_for(pool), ..scraping(&[server.address()]) }).await;
    eventually("the pool is there", async || {
        let answer = agent.get(&format!("/v1/pools/{pool}/snapshot")).await;
        (answer.status == 200).then_some(())
    })
    .await;
    agent
}

/// Reads as a proxy until this message arrives. Returns its age in milliseconds.
async fn until_read(agent: &Agent, sender: u64, text: &str) -> u64 {
    let mut positions: Vec<Position> = Vec::new();
    eventually(&format!("the message {text:?}"), async || {
        let (position, deliveries) = send(agent, &sync(sender, &positions, None)).await;
        positions = vec![position];
        deliveries.into_iter().find(|(found, _)| found == text).map(|(_, age_ms)| age_ms)
    })
    .await
}
