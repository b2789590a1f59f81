//! Mistakes of the agent, of the way to it and of the pool's endpoints, each by itself.

use metrics_agent_doctor::doctor::Severity::{Error, Warning};
use metrics_agent_status::unseen_queue::UnseenQueue;
use serde_json::json;

use super::fixture::Recorded;

/// The place of the recorded picker.
const PICKER: &str = "HTTP filter endpoint-picker";

#[test]
fn an_agent_cluster_that_does_not_exist() {
    let mut envoy = Recorded::wasm();
    envoy.set_picker("agentCluster", "metrics_agent".into());
    let problem = "agentCluster names \"metrics_agent\", a cluster that Envoy does not have; did you mean \"metrics-agent\"?";
    envoy.assert_finds(Error, problem, PICKER, "correct agentCluster");
}

#[test]
fn a_pool_that_the_agent_does_not_have() {
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        envoy.set_picker("pool", "defualt".into());
        let problem =
            "the agent has no pool \"defualt\": the filter never gets a snapshot; did you mean \"default\"?";
        envoy.assert_finds(Error, problem, PICKER, "one of the agent's pools: default");
    }
}

#[test]
fn an_agent_that_the_filter_has_never_reached() {
    let mut envoy = Recorded::wasm();
    envoy.set_statistic("snapshots", 0);
    envoy.set_statistic("snapshot_failures", 9);
    let host = &mut envoy.hosts("metrics-agent")[0];
    host["address"]["socket_address"]["port_value"] = 9999.into();
    host["stats"] = json!([{"name": "cx_total", "value": "9"}, {"name": "cx_connect_fail", "value": "9"}]);
    let problem = "the filter has never had a snapshot: no agent accepts connections at 127.0.0.1:9999";
    envoy.assert_finds(Error, problem, PICKER, "this agent is at http://127.0.0.1:9095/");

    envoy.hosts("metrics-agent").clear();
    envoy.assert_finds(Error, "the cluster metrics-agent has no hosts", "", "its name may not resolve");

    for (status, words) in [(401, "refuses Envoy's credentials"), (404, "does not have the pool \"default\"")]
    {
        let mut envoy = Recorded::wasm();
        envoy.set_statistic("snapshots", 0);
        envoy.statistics.push(format!("cluster.metrics-agent.upstream_rq_{status}: 3"));
        envoy.assert_finds(Error, words, PICKER, "");
    }

    let mut envoy = Recorded::native();
    envoy.set_statistic("snapshots", 0);
    let problem = "none of agent.addresses gives one (http://127.0.0.1:9095)";
    envoy.assert_finds(Error, problem, PICKER, "let agent.addresses name an agent that runs");
}

#[test]
fn a_snapshot_that_is_too_old() {
    let mut envoy = Recorded::native();
    envoy.set_statistic("snapshot_age_ms", 31_500);
    envoy.assert_finds(Error, "the last snapshot is 31 s old", PICKER, "start the agent");
}

#[test]
fn agents_that_differ() {
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        envoy.set_statistic("snapshots", 4_000);
        envoy.set_statistic("topology_changes", 999);
        envoy.assert_is_ok();
        envoy.set_statistic("topology_changes", 1_000);
        let problem =
            "1000 of 4000 snapshots changed the endpoints or the policy: the filter's agents differ";
        envoy.assert_finds(Error, problem, "pool default", "the same endpoints, manifests and flags");
        // A start with some changes.
        envoy.set_statistic("snapshots", 12);
        envoy.set_statistic("topology_changes", 9);
        envoy.assert_is_ok();
    }
}

#[test]
fn a_filter_whose_reports_the_agent_refuses() {
    let mut envoy = Recorded::wasm();
    envoy.set_statistic("sharing_failures", 7);
    envoy.set_statistic("sharing_sent", 0);
    let problem =
        "the agent has no report of a proxy, and 7 of the filter's requests to share changes failed";
    envoy.assert_finds(Warning, problem, "pool default", "--bearer-token-file");
    // The filter uses another agent, which was away for some seconds.
    envoy.set_statistic("sharing_sent", 900);
    envoy.assert_is_ok();
}

#[test]
fn statistics_that_envoy_leaves_out() {
    let without = |mut envoy: Recorded| {
        envoy.statistics.retain(|line| line.starts_with("cluster."));
        envoy
    };
    for mut envoy in [without(Recorded::wasm()), without(Recorded::native())] {
        // As Istio has one.
        let inclusions = json!({"patterns": [{"prefix": "server"}]});
        envoy.section("bootstrap")["bootstrap"]["stats_config"]["stats_matcher"] =
            json!({"inclusion_list": inclusions});
        envoy.assert_finds(Warning, "no statistics of the filter", PICKER, "proxyStatsMatcher");
    }
    // It writes them when the first request comes.
    let mut native = without(Recorded::native());
    native.section("bootstrap")["bootstrap"]["node"]["user_agent_build_version"]["version"]["minor_number"] =
        38.into();
    native.assert_is_ok();
}

#[test]
fn statistics_under_other_names() {
    let mut envoy = Recorded::native();
    for line in &mut envoy.statistics {
        *line = line.replace("dynamicmodulescustom.", "my.modules.");
    }
    let report = envoy.assert_is_ok();
    assert!(report.passed().contains(&"filter and agent have one version"), "{report}");
    envoy.hosts("model-servers").clear();
    envoy.cluster("model-servers")["alt_stat_name"] = "httproute://chat:0".into();
    envoy.statistics.push("cluster.httproute_chat_0.update_rejected: 4".to_owned());
    let fix = "Envoy has refused its file 4 times";
    envoy.assert_finds(Error, "the cluster has no hosts", "cluster model-servers", fix);
}

#[test]
fn an_agent_that_cannot_be_read() {
    let mut envoy = Recorded::wasm();
    envoy.agent_error = Some("cannot connect");
    let report = envoy.diagnose();
    assert_eq!(report.findings().count(), 1, "{report}");
    envoy.assert_finds(Error, "the agent cannot be read", "agent http://127.0.0.1:9095/", "--agent");
    assert!(!report.passed().contains(&"the agent has the pickers' pools"), "{report}");
}

#[test]
fn hosts_that_are_not_the_pools_endpoints() {
    let mut envoy = Recorded::wasm();
    envoy.hosts("model-servers").clear();
    let problem = "the cluster has no hosts, and pool default has 2 endpoints: requests get 503";
    envoy.assert_finds(Error, problem, "cluster model-servers", "--eds-cluster model-servers");
    envoy.statistics.push("cluster.model-servers.update_rejected: 4".to_owned());
    envoy.cluster("model-servers")["eds_cluster_config"]["service_name"] = "llama".into();
    let fix = "start the agent with --eds-cluster llama: Envoy has refused its file 4 times";
    envoy.assert_finds(Error, problem, "cluster model-servers", fix);

    let mut envoy = Recorded::wasm();
    envoy.hosts("model-servers").pop();
    let problem = "1 endpoint of pool default of 2 are not hosts of the cluster, and get no picked requests: 127.0.0.1:1800";
    envoy.assert_finds(Warning, problem, "cluster model-servers", "--eds-file");

    let mut envoy = Recorded::wasm();
    for endpoint in envoy.pools.get_mut("default").unwrap() {
        endpoint.0 = endpoint.0.replace("127.0.0.1", "10.0.0.1");
    }
    envoy.assert_finds(
        Error,
        "no endpoint of pool default is a host of the cluster",
        "cluster model-servers",
        "",
    );
}

#[test]
fn endpoints_that_are_not_scraped() {
    for (state, reason, words, fix) in [
        (
            "no_reading",
            "HTTP failed: invalid HTTP version parsed; does the server speak TLS?",
            "never read",
            "--model-server-metrics-scheme https",
        ),
        ("no_reading", "the server does not speak TLS", "never read", "--model-server-metrics-scheme http"),
        ("no_reading", "the certificate's issuer is not trusted", "never read", "--scrape-ca"),
        ("stale", "status 404", "any more", "--metrics-path"),
    ] {
        let mut envoy = Recorded::wasm();
        envoy.pools.get_mut("default").unwrap()[1].1 = state;
        envoy.reason = Some(reason);
        envoy.assert_finds(Warning, words, "endpoint 127.0.0.1:18002", fix);
        envoy.assert_finds(Warning, reason, "endpoint 127.0.0.1:18002", fix);
    }
    let mut envoy = Recorded::wasm();
    envoy.pools.get_mut("default").unwrap().clear();
    envoy.assert_finds(Error, "the pool has no endpoints", "pool default", "source of endpoints");
}

#[test]
fn servers_that_show_no_queue_although_requests_wait_there() {
    let unseen = |is_reported, scorers: &[&str]| {
        let scorers = scorers.iter().map(|it| (*it).to_owned()).collect();
        Some(UnseenQueue { busy_readings: 240, most_running: 8, is_reported, scorers })
    };
    let check = "servers show the queues by which they are picked";
    for (is_reported, scorers, in_flight) in [
        (true, &["queue-scorer"][..], Some(16)),
        (true, &["queue-scorer"], None),
        (true, &[], Some(50)),
        (false, &[], Some(50)),
    ] {
        let queue = unseen(is_reported, scorers);
        let envoy = Recorded { unseen_queue: queue, in_flight, ..Recorded::wasm() };
        assert!(envoy.assert_is_ok().passed().contains(&check));
    }
    assert!(!Recorded::wasm().assert_is_ok().passed().contains(&check), "no server has had much work");

    let fix = "--rules expected-latency";
    let mut envoy = Recorded::wasm();
    envoy.pools.get_mut("default").unwrap().pop();
    envoy.hosts("model-servers").pop();
    envoy.unseen_queue = unseen(true, &["queue-scorer"]);
    envoy.in_flight = Some(17);
    let problem = "no request waited in 240 busy readings with up to 8 running: queue-scorer takes it for \
                   idle; the proxies have 17 in flight there";
    envoy.assert_finds(Warning, problem, "endpoint 127.0.0.1:18001", fix);
    envoy.unseen_queue = unseen(false, &["queue-scorer"]);
    envoy.in_flight = Some(1);
    envoy.assert_finds(Warning, "the server reports no waiting requests in 240", "127.0.0.1:18001", fix);
}

#[test]
fn a_filter_of_another_version() {
    for envoy in [Recorded::wasm(), Recorded::native()] {
        let fix = "load the module of the agent's version";
        let mut other = envoy.clone();
        for line in &mut other.statistics {
            if line.contains("build_info") {
                *line = line.replace(env!("CARGO_PKG_VERSION"), "7.8.9");
            }
        }
        let problem = concat!("the filter has version 7.8.9, and the agent ", env!("CARGO_PKG_VERSION"));
        other.assert_finds(Warning, problem, "pool default", fix);
        let mut older = envoy;
        older.statistics.retain(|line| !line.contains("build_info"));
        older.assert_finds(Warning, "it does not count its version", "pool default", fix);
    }
}

#[test]
fn requests_that_others_served() {
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        envoy.set_statistic("routed", 100);
        envoy.set_statistic("served_elsewhere", 5);
        envoy.assert_is_ok();
        envoy.set_statistic("served_elsewhere", 67);
        envoy.assert_finds(Error, "67 of 100 requests were served by another server", "pool default", "");
    }
}
