//! Model servers under host names, which a DNS server resolves.

use std::net::SocketAddr;

use endpoint_picker_wire::v1::Snapshot;
use metrics_agent::agent::Settings;
use metrics_agent_sources::endpoints::{Declared, NamedServer, Sources};
use metrics_agent_status::pool::PoolStatus;

use crate::harness::{Agent, eventually, settings};
use crate::name_server::{NameServer, Reply};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// Model servers at one port of several addresses of this host.
async fn servers(addresses: &[&str]) -> (Vec<ScriptedServer>, u16) {
    let mut servers: Vec<ScriptedServer> = Vec::new();
    for address in addresses {
        let port = servers.first().map_or(0, |first| first.address().port());
        let address = SocketAddr::new(address.parse().unwrap(), port);
        servers.push(ScriptedServer::start_on(address, Behaviour::Text(load(1, 0))).await);
    }
    let port = servers[0].address().port();
    (servers, port)
}

fn settings_for(dns: &NameServer, hosts: &[&str], port: u16) -> Settings {
    let named = |host: &&str| NamedServer {
        name: format!("default/{host}"),
        host: host.parse().unwrap(),
        port: Some(port.try_into().unwrap()),
        labels: vec![],
    };
    let fixed = Declared { endpoints: vec![], named: hosts.iter().map(named).collect() };
    let sources = Sources { fixed, resolver: dns.resolver(), ..Sources::default() };
    Settings { sources, ..settings() }
}

async fn agent_for(dns: &NameServer, hosts: &[&str], port: u16) -> Agent {
    Agent::start(settings_for(dns, hosts, port)).await
}

/// Names and addresses of the endpoints that were scraped.
fn scraped(snapshot: &Snapshot) -> Vec<String> {
    let endpoints = &snapshot.topology.as_ref().unwrap().endpoints;
    let pairs = endpoints.iter().zip(&snapshot.readings);
    let scraped = pairs.filter(|(_, reading)| reading.waiting == Some(1));
    scraped.map(|(endpoint, _)| format!("{} {}", endpoint.name, endpoint.address)).collect()
}

async fn until_scraped(agent: &Agent, expected: &[String]) -> Snapshot {
    let what = format!("{expected:?} are scraped");
    let all = |snapshot: &Snapshot| {
        snapshot.topology.as_ref().is_some_and(|topology| topology.endpoints.len() == expected.len())
            && scraped(snapshot) == expected
    };
    agent.snapshot_where(&what, all).await
}

async fn status(agent: &Agent) -> PoolStatus {
    serde_json::from_slice(&agent.get("/v1/pools/default").await.body).unwrap()
}

/// Waits until the status has one problem with a host name, which passes.
async fn until_unresolved(agent: &Agent, problem: &str, addresses: usize) -> PoolStatus {
    eventually(problem, async || {
        let answer = agent.get("/v1/pools/default").await;
        let status: PoolStatus = serde_json::from_slice(&answer.body).ok()?;
        let [unresolved] = &status.unresolved[..] else { return None };
        (unresolved.problem == problem && unresolved.addresses == addresses).then_some(status)
    })
    .await
}

#[tokio::test]
async fn addresses_of_a_name_come_and_go_and_their_order_does_not_matter() {
    let (_servers, port) = servers(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("vllm.example", &["127.0.0.2", "127.0.0.1"]);
    let agent = agent_for(&dns, &["vllm.example"], port).await;
    let endpoint = |ip: &str| format!("default/vllm.example@{ip} {ip}:{port}");
    let (one, two, three) = (endpoint("127.0.0.1"), endpoint("127.0.0.2"), endpoint("127.0.0.3"));
    let first = until_scraped(&agent, &[one.clone(), two.clone()]).await;

    dns.set_addresses("vllm.example", &["127.0.0.1", "127.0.0.2"]);
    let asked = dns.queries();
    eventually("the name is looked up again after its TTL", async || {
        (dns.queries() >= asked + 4).then_some(())
    })
    .await;
    assert_eq!(agent.snapshot("").await.unwrap().topology_version, first.topology_version);

    dns.set_addresses("vllm.example", &["127.0.0.3", "127.0.0.2", "127.0.0.1"]);
    until_scraped(&agent, &[one, two.clone(), three.clone()]).await;
    dns.set_addresses("vllm.example", &["127.0.0.3", "127.0.0.2"]);
    until_scraped(&agent, &[two, three]).await;
    assert!(agent.metric("metrics_agent_name_lookups_total{result=\"ok\"}").await >= 4.0);
}

#[tokio::test]
async fn a_name_that_no_longer_resolves_keeps_its_addresses_and_says_so() {
    let (_servers, port) = servers(&["127.0.0.1", "127.0.0.2"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("vllm.test", &["127.0.0.1"]);
    let agent = agent_for(&dns, &["vllm.test."], port).await;
    let endpoint = |ip: &str| format!("default/vllm.test.@{ip} {ip}:{port}");
    until_scraped(&agent, &[endpoint("127.0.0.1")]).await;

    dns.remove("vllm.test");
    let status = until_unresolved(&agent, "no such name (NXDOMAIN)", 1).await;
    let line = "host name vllm.test. of default/vllm.test.: no such name (NXDOMAIN); its last addresses stay in use (1)\n";
    assert!(status.to_string().contains(line), "{status}");
    until_scraped(&agent, &[endpoint("127.0.0.1")]).await;

    dns.set("vllm.test", Reply::Fails);
    until_unresolved(&agent, "the name server failed (SERVFAIL)", 1).await;
    dns.set("vllm.test", Reply::Addresses(vec![]));
    until_unresolved(&agent, "the name has no address", 1).await;
    until_scraped(&agent, &[endpoint("127.0.0.1")]).await;

    dns.set_addresses("vllm.test", &["127.0.0.2"]);
    until_scraped(&agent, &[endpoint("127.0.0.2")]).await;
    eventually("nothing is wrong", async || self::status(&agent).await.unresolved.is_empty().then_some(()))
        .await;
}

/// The addresses of the ready endpoints, in the order of the topology.
fn ready(snapshot: &Snapshot) -> Vec<String> {
    let endpoints = &snapshot.topology.as_ref().unwrap().endpoints;
    let ready = endpoints.iter().zip(&snapshot.readings).filter(|(_, reading)| reading.ready);
    ready.map(|(endpoint, _)| endpoint.address.split(':').next().unwrap().to_owned()).collect()
}

async fn until_ready(agent: &Agent, addresses: &[&str]) {
    let what = format!("{addresses:?} are ready");
    agent.snapshot_where(&what, |snapshot| snapshot.topology.is_some() && ready(snapshot) == addresses).await;
}

#[tokio::test]
async fn a_denied_name_is_not_ready_while_another_has_an_address() {
    let (servers, port) = servers(&["127.0.0.1", "127.0.0.2"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("gone.test", &["127.0.0.1"]);
    dns.set_addresses("stays.test", &["127.0.0.2"]);
    let agent = agent_for(&dns, &["gone.test.", "stays.test."], port).await;
    until_ready(&agent, &["127.0.0.1", "127.0.0.2"]).await;

    // SERVFAIL is no denial, however often it comes.
    dns.set("gone.test", Reply::Fails);
    let failed = "metrics_agent_name_lookups_total{result=\"refused\"}";
    eventually("three failures", async || (agent.metric(failed).await > 2.5).then_some(())).await;
    assert_eq!(ready(&agent.snapshot("").await.unwrap()), ["127.0.0.1", "127.0.0.2"]);

    for (denial, problem) in
        [(None, "no such name (NXDOMAIN)"), (Some(Reply::Addresses(vec![])), "the name has no address")]
    {
        match denial {
            None => dns.remove("gone.test"),
            Some(reply) => dns.set("gone.test", reply),
        }
        // Its server still responds.
        until_ready(&agent, &["127.0.0.2"]).await;
        let status = until_unresolved(&agent, problem, 1).await;
        let line = format!(
            "host name gone.test. of default/gone.test.: {problem}; its last addresses serve only while no other endpoint is ready (1)\n"
        );
        assert!(status.to_string().contains(&line), "{status}");
        dns.set_addresses("gone.test", &["127.0.0.1"]);
        until_ready(&agent, &["127.0.0.1", "127.0.0.2"]).await;
    }

    // Of two denied names both serve: the name server has lost its zone.
    dns.remove("gone.test");
    until_ready(&agent, &["127.0.0.2"]).await;
    dns.remove("stays.test");
    until_ready(&agent, &["127.0.0.1", "127.0.0.2"]).await;

    // A server that is not the one that had metrics gets no prompts, even if no other is ready.
    servers[0].set_behaviour(Behaviour::Status(404));
    until_ready(&agent, &["127.0.0.2"]).await;
    servers[1].set_behaviour(Behaviour::Status(404));
    until_ready(&agent, &[]).await;
    dns.set_addresses("stays.test", &["127.0.0.2"]);
    until_ready(&agent, &["127.0.0.2"]).await;
}

#[tokio::test]
async fn a_name_that_never_resolved_is_reported_and_the_others_are_served() {
    let (_servers, port) = servers(&["127.0.0.1"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("right.test", &["127.0.0.1"]);
    let agent = agent_for(&dns, &["right", "wrong"], port).await;
    let endpoint = format!("default/right@127.0.0.1 127.0.0.1:{port}");
    until_scraped(&agent, core::slice::from_ref(&endpoint)).await;
    let status = until_unresolved(&agent, "no such name (NXDOMAIN)", 0).await;
    let line = "host name wrong of default/wrong: no such name (NXDOMAIN); it was never resolved, so it has no endpoints\n";
    assert!(status.to_string().contains(line), "{status}");
    assert_eq!(agent.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn two_names_with_one_address_are_one_endpoint() {
    let (_servers, port) = servers(&["127.0.0.1", "127.0.0.2"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("a.test", &["127.0.0.1"]);
    dns.set_addresses("b.test", &["127.0.0.1", "127.0.0.2"]);
    let agent = agent_for(&dns, &["a.test.", "b.test."], port).await;
    let expected = [
        format!("default/a.test.@127.0.0.1 127.0.0.1:{port}"),
        format!("default/b.test.@127.0.0.2 127.0.0.2:{port}"),
    ];
    until_scraped(&agent, &expected).await;
    assert_eq!(status(&agent).await.unresolved, []);
}

#[tokio::test]
async fn addresses_of_ipv6_are_endpoints_and_a_failure_of_one_family_keeps_its_addresses() {
    let (_servers, port) = servers(&["::1", "127.0.0.1"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("vllm.test", &["::1", "127.0.0.1", "0.0.0.0", "224.0.0.1"]);
    let agent = agent_for(&dns, &["vllm"], port).await;
    let four = format!("default/vllm@127.0.0.1 127.0.0.1:{port}");
    let six = format!("default/vllm@::1 [::1]:{port}");
    let first = until_scraped(&agent, &[four, six.clone()]).await;

    dns.set("vllm.test", Reply::FailsForIpv4(vec!["::1".parse().unwrap()]));
    let lookups = async || agent.metric("metrics_agent_name_lookups_total{result=\"ok\"}").await;
    let before = lookups().await;
    eventually("two lookups more", async || (lookups().await >= before + 2.0).then_some(())).await;
    assert_eq!(agent.snapshot("").await.unwrap().topology_version, first.topology_version);

    dns.set_addresses("vllm.test", &["::1"]);
    until_scraped(&agent, &[six]).await;
}

#[tokio::test]
async fn the_hosts_file_precedes_the_name_servers_and_is_read_again() {
    let (_servers, port) = servers(&["127.0.0.1", "127.0.0.2"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("vllm.test", &["127.0.0.9"]);
    dns.set_hosts_file("127.0.0.1\tvllm other # a comment\n");
    let agent = agent_for(&dns, &["vllm"], port).await;
    until_scraped(&agent, &[format!("default/vllm@127.0.0.1 127.0.0.1:{port}")]).await;
    assert_eq!(dns.queries(), 0);
    dns.set_hosts_file("127.0.0.2 vllm\n");
    until_scraped(&agent, &[format!("default/vllm@127.0.0.2 127.0.0.2:{port}")]).await;
}

#[tokio::test]
async fn the_endpoints_file_may_have_host_names() {
    let (_servers, port) = servers(&["127.0.0.1", "127.0.0.2"]).await;
    let dns = NameServer::start().await;
    dns.set_addresses("vllm.test", &["127.0.0.2"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("endpoints.yaml");
    let write = |entries: &str| {
        let new = folder.path().join("new");
        std::fs::write(&new, format!("endpoints: [{entries}]")).unwrap();
        std::fs::rename(new, &file).unwrap();
    };
    let named = format!("{{name: b, address: vllm, port: {port}, labels: {{zone: z}}}}");
    write(&named);
    let sources = Sources { file: Some(file.clone()), resolver: dns.resolver(), ..Sources::default() };
    let agent = Agent::start(Settings { sources, ..settings() }).await;
    let endpoint = format!("default/b@127.0.0.2 127.0.0.2:{port}");
    let snapshot = until_scraped(&agent, core::slice::from_ref(&endpoint)).await;
    let label = &snapshot.topology.unwrap().endpoints[0].labels[0];
    assert_eq!((label.key.as_str(), label.value.as_str()), ("zone", "z"));

    write(&format!("{named}, {{name: a, address: 127.0.0.1, port: {port}}}"));
    until_scraped(&agent, &[format!("default/a 127.0.0.1:{port}"), endpoint]).await;
    write(&format!("{{name: a, address: 127.0.0.1, port: {port}}}"));
    until_scraped(&agent, &[format!("default/a 127.0.0.1:{port}")]).await;
}
