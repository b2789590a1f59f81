//! Agents that exchange changes through a real store, Redis or Valkey.

use core::time::Duration;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use endpoint_picker_wire::changes::Position;
use metrics_agent::agent::Settings;
use metrics_agent::catalogue::watch;
use metrics_agent::sharing::Share;
use metrics_agent::sharing::store::StoreAddress;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::changes::{exchange, send, send_to};
use crate::harness::{Agent, eventually, options_for, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// A store on a port of its own, without anything on disk. It ends when it is dropped.
struct Store {
    address: SocketAddr,
    flags: &'static [&'static str],
    folder: TempDir,
    process: Child,
}

impl Store {
    async fn start(flags: &'static [&'static str]) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let process = spawn(address, flags, &folder);
        let store = Self { address, flags, folder, process };
        store.answers().await;
        store
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts again, empty.
    async fn restart(&mut self) {
        self.process = spawn(self.address, self.flags, &self.folder);
        self.answers().await;
    }

    async fn answers(&self) {
        eventually("the store answers", async || {
            let mut stream = TcpStream::connect(self.address).await.ok()?;
            stream.write_all(b"PING\r\n").await.ok()?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).await.ok()?;
            Some(())
        })
        .await;
    }

    /// Sends a command without spaces in its arguments, and returns the first line of the answer.
    async fn command(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).lines().next().unwrap().to_owned()
    }
}

fn spawn(address: SocketAddr, flags: &[&str], folder: &TempDir) -> Child {
    let program = ["valkey-server", "redis-server"].into_iter().find(|program| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    let program = program.expect("redis-server or valkey-server is on PATH: run `make test-tools`");
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"]).arg(folder.path());
    command.args(flags).stdout(Stdio::null()).spawn().unwrap()
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An agent with one pool of this name and one model server.
async fn agent(pool: &str, url: &str, server: &ScriptedServer) -> Agent {
    let share = Share::Store(StoreAddress::parse(url).unwrap());
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
        let (position, deliveries) = send(agent, &exchange(sender, &positions, None)).await;
        positions = vec![position];
        deliveries.into_iter().find(|(found, _)| found == text).map(|(_, age_ms)| age_ms)
    })
    .await
}

#[tokio::test]
async fn proxies_of_two_agents_share_through_the_store_and_other_pools_do_not() {
    let store = Store::start(&[]).await;
    let url = format!("redis://{}", store.address);
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    let other = agent("other", &url, &server).await;
    send_to(&other, "other", &exchange(3, &[], None)).await;
    send(&two, &exchange(2, &[], None)).await;
    let sent = Instant::now();
    send(&one, &exchange(1, &[], Some("from one"))).await;
    let age_ms = until_read(&two, 2, "from one").await;
    assert!((7..=sent.elapsed().as_millis() + 10).contains(&age_ms.into()), "{age_ms} ms");
    send(&two, &exchange(2, &[], Some("from two"))).await;
    until_read(&one, 1, "from two").await;
    // An agent that starts reads what was sent before.
    let late = agent("default", &url, &server).await;
    until_read(&late, 4, "from one").await;
    assert!(send_to(&other, "other", &exchange(3, &[], None)).await.1.is_empty());
    assert!(store.command("TTL endpoint-picker/changes/{default}").await.starts_with(":1"), "it expires");
    assert_eq!(one.metric("metrics_agent_store_unreadable_total").await.to_string(), "0");
}

/// An agent that reads a pool `llama` of this namespace from a file.
async fn agent_of_file(namespace: &str, url: &str, folder: &TempDir) -> Agent {
    let path = folder.path().join(format!("{namespace}.yaml"));
    let pool = format!(
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{name: llama, namespace: {namespace}}}\n\
         spec: {{selector: {{matchLabels: {{app: a}}}}, targetPorts: [{{number: 8000}}]}}\n"
    );
    std::fs::write(&path, pool).unwrap();
    let share = Share::Store(StoreAddress::parse(url).unwrap());
    let manifests = Some(watch::Settings { path, options: options_for("default") });
    let agent =
        Agent::start(Settings { share, manifests, ..scraping(&["127.0.0.1:1".parse().unwrap()]) }).await;
    eventually("the pool is there", async || {
        (agent.get("/v1/pools/llama/snapshot").await.status == 200).then_some(())
    })
    .await;
    agent
}

#[tokio::test]
async fn pools_of_one_name_in_the_files_of_two_namespaces_do_not_share() {
    let store = Store::start(&[]).await;
    let url = format!("redis://{}", store.address);
    let folder = tempfile::tempdir().unwrap();
    let (one, same) = (agent_of_file("a", &url, &folder).await, agent_of_file("a", &url, &folder).await);
    let other = agent_of_file("b", &url, &folder).await;
    for (agent, sender, text) in [(&other, 3, "from b"), (&one, 1, "from a")] {
        send_to(agent, "llama", &exchange(sender, &[], Some(text))).await;
    }
    eventually("the message of its own pool", async || {
        let (_, deliveries) = send_to(&same, "llama", &exchange(2, &[], None)).await;
        assert!(deliveries.iter().all(|(text, _)| text == "from a"), "{deliveries:?}");
        (!deliveries.is_empty()).then_some(())
    })
    .await;
    let (_, deliveries) = send_to(&other, "llama", &exchange(4, &[], None)).await;
    let texts: Vec<_> = deliveries.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts, ["from b"]);
}

#[tokio::test]
async fn a_store_that_is_killed_and_comes_back_empty_is_used_again_and_no_proxy_waits_for_it() {
    let mut store = Store::start(&[]).await;
    let url = format!("redis://{}", store.address);
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    send(&one, &exchange(1, &[], Some("before"))).await;
    until_read(&two, 2, "before").await;
    store.kill();
    eventually("the agent has it", async || {
        send(&one, &exchange(1, &[], None)).await;
        (one.metric("metrics_agent_store_connected_pools").await < 0.5).then_some(())
    })
    .await;
    let asked = Instant::now();
    send(&one, &exchange(1, &[], Some("meanwhile"))).await;
    let (_, deliveries) = send(&one, &exchange(5, &[], None)).await;
    assert!(deliveries.iter().any(|(text, _)| text == "meanwhile"), "proxies of one agent go on");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    store.restart().await;
    let back = Instant::now();
    until_read(&two, 2, "meanwhile").await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
    send(&two, &exchange(2, &[], Some("after"))).await;
    until_read(&one, 1, "after").await;
    assert!(one.metric("metrics_agent_store_failures_total").await > 0.5);
}

#[tokio::test]
async fn a_store_may_require_a_user_and_entries_that_are_no_messages_are_passed_over() {
    let store = Store::start(&[
        "--user",
        "picker",
        "on",
        ">secret",
        "~endpoint-picker/*",
        "+@all",
        "--user",
        "default",
        "off",
    ])
    .await;
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let wrong = agent("default", &format!("redis://picker:wrong@{}", store.address), &server).await;
    send(&wrong, &exchange(1, &[], Some("never there"))).await;
    eventually("a failure is counted", async || {
        (wrong.metric("metrics_agent_store_failures_total").await > 0.5).then_some(())
    })
    .await;
    let url = format!("redis://picker:secret@{}", store.address);
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    send(&two, &exchange(2, &[], None)).await;
    let mut stream = TcpStream::connect(store.address).await.unwrap();
    for entry in ["m garbage", "x y"] {
        let add = format!("AUTH picker secret\r\nXADD endpoint-picker/changes/{{default}} * {entry}\r\n");
        stream.write_all(add.as_bytes()).await.unwrap();
    }
    send(&one, &exchange(1, &[], Some("good"))).await;
    until_read(&two, 2, "good").await;
    eventually("both entries are counted", async || {
        (two.metric("metrics_agent_store_unreadable_total").await > 1.5).then_some(())
    })
    .await;
}
