//! Stores with users, with TLS, of several nodes, and with sentinels.

use metrics_agent::store::{NodeRole, StoreAddress};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::server::{Store, free_address};
use super::{agent, agent_with, model_server, until_read};
use crate::authority::Authority;
use crate::changes::{send, send_to, sync};
use crate::harness::eventually;

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
    let server = model_server().await;
    let wrong = agent("default", &format!("redis://picker:wrong@{}", store.address()), &server).await;
    send(&wrong, &sync(1, &[], Some("never there"))).await;
    eventually("a failure is counted", async || {
        (wrong.metric("metrics_agent_store_failures_total").await > 0.5).then_some(())
    })
    .await;
    let url = format!("redis://picker:secret@{}", store.address());
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    send(&two, &sync(2, &[], None)).await;
    let mut stream = TcpStream::connect(store.address()).await.unwrap();
    for entry in ["m garbage", "x y"] {
        let add = format!("AUTH picker secret\r\nXADD endpoint-picker/changes/{{default}} * {entry}\r\n");
        stream.write_all(add.as_bytes()).await.unwrap();
    }
    send(&one, &sync(1, &[], Some("good"))).await;
    until_read(&two, 2, "good").await;
    eventually("both entries are counted", async || {
        (two.metric("metrics_agent_store_unreadable_total").await > 1.5).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_store_may_speak_tls_and_a_certificate_of_others_is_refused() {
    let authority = Authority::new();
    let files = authority.issue("127.0.0.1");
    let user =
        ["--user", "picker", "on", ">secret", "~endpoint-picker/*", "+@all", "--user", "default", "off"];
    let store = Store::start_secured(&files.certificate, &files.key, &user).await;
    let url = format!("rediss://picker:secret@{}", store.address());
    let trusting = |authority: &Authority| {
        let address = StoreAddress::parse(&url).unwrap();
        address.with(NodeRole::Single, Some(authority.certificate())).unwrap()
    };
    let server = model_server().await;
    let one = agent_with("default", trusting(&authority), &server).await;
    let two = agent_with("default", trusting(&authority), &server).await;
    send(&two, &sync(2, &[], None)).await;
    send(&one, &sync(1, &[], Some("over TLS"))).await;
    until_read(&two, 2, "over TLS").await;
    let other = agent_with("default", trusting(&Authority::new()), &server).await;
    send(&other, &sync(3, &[], None)).await;
    eventually("a failure is counted", async || {
        (other.metric("metrics_agent_store_failures_total").await > 0.5).then_some(())
    })
    .await;
    assert!(other.metric("metrics_agent_store_connected_pools").await < 0.5);
    assert!(send(&other, &sync(3, &[], None)).await.1.is_empty());
}

#[tokio::test]
async fn a_store_may_be_a_cluster_of_three_nodes_of_which_one_is_named() {
    let mut nodes: Vec<(Store, String)> = Vec::new();
    for slots in ["0 5460", "5461 10922", "10923 16383"] {
        // Both ports are chosen here: the usual one of the nodes among themselves may be above 65535.
        let bus = free_address().port().to_string();
        let flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", &bus];
        let node = Store::start(&flags).await;
        assert_eq!(node.command(&format!("CLUSTER ADDSLOTSRANGE {slots}")).await, "+OK\r\n");
        nodes.push((node, bus));
    }
    for (node, bus) in &nodes[1..] {
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.address().port());
        assert_eq!(nodes[0].0.command(&meet).await, "+OK\r\n");
    }
    for (node, _) in &nodes {
        eventually("the cluster works", async || {
            let info = node.command("CLUSTER INFO").await;
            (info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")).then_some(())
        })
        .await;
    }
    // One node is named, and names the others.
    let address = || StoreAddress::parse(&nodes[0].0.url()).unwrap().with(NodeRole::Cluster, None).unwrap();
    let server = model_server().await;
    let mut holders = Vec::new();
    for pool in ["default", "llama", "mistral", "qwen", "phi", "gemma"] {
        let (one, two) =
            (agent_with(pool, address(), &server).await, agent_with(pool, address(), &server).await);
        send_to(&two, pool, &sync(2, &[], None)).await;
        send_to(&one, pool, &sync(1, &[], Some("in a cluster"))).await;
        eventually("the message", async || {
            let (_, deliveries) = send_to(&two, pool, &sync(2, &[], None)).await;
            (!deliveries.is_empty()).then_some(())
        })
        .await;
        let key = format!("endpoint-picker/changes/{{{pool}}}");
        for (number, (node, _)) in nodes.iter().enumerate() {
            if node.command(&format!("XLEN {key}")).await == ":1\r\n" {
                holders.push(number);
            }
        }
    }
    assert_eq!(holders.len(), 6, "each stream is on one node");
    holders.sort_unstable();
    holders.dedup();
    assert!(holders.len() > 1, "and not all on the same: {holders:?}");
}

#[tokio::test]
async fn sentinels_name_the_primary_also_after_it_has_failed() {
    let mut primary = Store::start(&[]).await;
    let port = primary.address().port().to_string();
    let replica = Store::start(&["--replicaof", "127.0.0.1", &port]).await;
    eventually("the replica follows", async || {
        replica.command("INFO replication").await.contains("master_link_status:up").then_some(())
    })
    .await;
    let sentinel = Store::start_sentinel("picker", primary.address()).await;
    eventually("the sentinel has found the replica", async || {
        let info = sentinel.command("INFO sentinel").await;
        info.contains("status=ok,").then_some(())?;
        info.contains("slaves=1").then_some(())
    })
    .await;
    let address = || {
        let nodes = NodeRole::Sentinels("picker".to_owned());
        StoreAddress::parse(&sentinel.url()).unwrap().with(nodes, None).unwrap()
    };
    let server = model_server().await;
    let one = agent_with("default", address(), &server).await;
    let two = agent_with("default", address(), &server).await;
    send(&two, &sync(2, &[], None)).await;
    send(&one, &sync(1, &[], Some("before"))).await;
    until_read(&two, 2, "before").await;
    primary.kill();
    send(&one, &sync(1, &[], Some("meanwhile"))).await;
    until_read(&two, 2, "meanwhile").await;
    assert!(replica.command("ROLE").await.contains("master"));
    send(&two, &sync(2, &[], Some("after"))).await;
    until_read(&one, 1, "after").await;
}
