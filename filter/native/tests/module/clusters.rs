//! The module's own cluster.

use std::time::{Duration, Instant};

use endpoint_picker_wire::{Message, v1};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::envoy::{Cluster, Config, Next, Request, Value};
use crate::pool::{
    Agent, DEADLINE, Pool, address, fewest_waiting, ready, snapshot, snapshot_from, turn, unready,
    with_agent, with_policy,
};

const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;

fn routed(config: &Config, hint: Option<&str>) -> Request {
    let request = Request::chat(config, 0);
    if let Some(hint) = hint {
        let key = "x-gateway-destination-endpoint-subset";
        request.set_metadata("envoy.lb.subset_hint", key, Value::Text(hint.to_owned()));
    }
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    request
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Gives a pool its first snapshot.
fn begin(config: &Pool, snapshot: Vec<u8>) {
    config.agent.publish(snapshot);
    config.agent.wait_until_taken();
}

#[test]
fn its_hosts_are_the_pools_endpoints_from_the_first_snapshot_on_and_envoy_waits_for_that() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-1"})).unwrap();
    assert_eq!(cluster.choose(None), None, "no pool");
    let config = unready("clusters-1", &json!({"steering": "cluster"}));
    cluster.run();
    assert!(!cluster.is_ready());
    begin(&config, snapshot("clusters-1", fewest_waiting(), &[1, 0]));
    cluster.run();
    assert!(cluster.is_ready());
    assert_eq!(cluster.hosts(), [address(1), address(2)]);
    let later = Cluster::new(&json!({"pool": "clusters-1"})).unwrap();
    assert!(later.is_ready());
    assert_eq!(later.hosts(), [address(1), address(2)]);
}

#[test]
fn envoy_waits_two_seconds_for_a_pool_without_a_snapshot() {
    let _turn = turn();
    let start = Instant::now();
    let cluster = Cluster::new(&json!({"pool": "clusters-8"})).unwrap();
    cluster.run_until("the end of the initialization", Cluster::is_ready);
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn envoy_waits_longer_for_an_agent_of_the_modules_format() {
    let _turn = turn();
    let agent = Agent::start();
    let snapshot = snapshot("clusters-11", fewest_waiting(), &[0]);
    let mut other_format = v1::Snapshot::decode(snapshot.as_slice()).unwrap();
    other_format.format += 1;
    agent.publish(other_format.encode_to_vec());
    let start = Instant::now();
    let cluster = Cluster::new(&json!({"pool": "clusters-11", "agent": agent.access()})).unwrap();
    cluster.run_until("two seconds have passed", |_| start.elapsed() >= Duration::from_millis(2_100));
    assert!(!cluster.is_ready());
    agent.publish(snapshot);
    cluster.run_until("the end of the initialization", Cluster::is_ready);
    assert_eq!(cluster.hosts(), [address(1)]);
}

#[test]
fn endpoints_that_left_the_pool_are_chosen_no_more_and_are_no_hosts_soon() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-2"})).unwrap();
    let first = ready("clusters-2", &json!({"steering": "cluster"}));
    cluster.run();
    assert_eq!(cluster.hosts().len(), 3);
    drop(first);
    let _second = with_policy("clusters-2", &json!({"steering": "cluster"}), fewest_waiting(), &[0]);
    cluster.run();
    let chosen: Vec<_> = (0..4).map(|_| cluster.choose(None).unwrap()).collect();
    assert!(chosen.iter().all(|chosen| *chosen == address(1)), "{chosen:?}");
    // A worker that has just chosen one hands it to Envoy, which must still know it.
    assert_eq!(cluster.hosts().len(), 3);
    cluster.run_until("hosts are removed", |cluster| cluster.hosts() == [address(1)]);
}

#[test]
fn another_way_to_the_agent_replaces_the_hosts_when_its_snapshot_is_there() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-7"})).unwrap();
    let older = with_policy("clusters-7", &json!({"steering": "cluster"}), fewest_waiting(), &[0]);
    cluster.run();
    let newer = unready("clusters-7", &json!({"steering": "cluster"}));
    drop(older);
    cluster.run();
    assert_eq!(cluster.choose(None), Some(address(1)), "the last known host");
    begin(&newer, snapshot_from("clusters-7", fewest_waiting(), 5, &[9, 0]));
    cluster.run();
    let request = routed(&newer, None);
    assert_eq!(request.destinations(), Some(address(6)));
    assert_eq!(cluster.choose(Some(&request)), Some(address(6)));
    cluster.run_until("the older hosts are removed", |cluster| cluster.hosts() == [address(5), address(6)]);
}

#[test]
fn both_pools_have_hosts_while_an_older_way_to_the_agent_is_still_in_use() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-9"})).unwrap();
    let older = with_policy("clusters-9", &json!({"steering": "cluster"}), fewest_waiting(), &[0]);
    let newer = unready("clusters-9", &json!({"steering": "cluster"}));
    begin(&newer, snapshot_from("clusters-9", fewest_waiting(), 5, &[0]));
    cluster.run();
    for (config, endpoint) in [(&older, 1), (&newer, 5)] {
        assert_eq!(cluster.choose(Some(&routed(config, None))), Some(address(endpoint)));
    }
    assert_eq!(cluster.choose(None), Some(address(5)), "the newer pool's");
}

#[test]
fn a_pool_that_is_configured_without_its_namespace_has_hosts_too() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-10"})).unwrap();
    let config = unready("clusters-10", &json!({"steering": "cluster"}));
    begin(&config, snapshot("default/clusters-10", fewest_waiting(), &[1, 0]));
    cluster.run();
    assert_eq!(cluster.hosts(), [address(1), address(2)]);
    assert_eq!(cluster.choose(Some(&routed(&config, None))), Some(address(2)));
}

/// Runs Envoy's main thread until a request's pick is this endpoint. Requests before that are served as well.
fn until_picked(config: &Config, cluster: &Cluster, endpoint: usize) {
    config.run_until("the newer pick", |config| {
        let request = routed(config, None);
        let served = cluster.choose(Some(&request));
        assert_eq!(served, request.destinations(), "a pick is a host");
        cluster.run();
        (served == Some(address(endpoint))).then_some(())
    });
}

#[test]
fn one_more_configuration_of_a_pool_costs_its_clusters_nothing() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-15"})).unwrap();
    let first = ready("clusters-15", &json!({"steering": "cluster"}));
    cluster.run();
    let second = with_agent("clusters-15", &json!({"steering": "cluster"}), &first.agent);
    assert!(!cluster.is_woken());
    drop(first);
    assert!(!cluster.is_woken());
    drop(second);
    assert!(cluster.is_woken(), "the pool has ended");
}

#[test]
fn decisions_use_new_endpoints_when_they_are_hosts() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-11"})).unwrap();
    let config = with_policy("clusters-11", &json!({"steering": "cluster"}), fewest_waiting(), &[0, 1]);
    cluster.run();
    config.agent.publish(snapshot_from("clusters-11", fewest_waiting(), 5, &[0, 1]));
    until_picked(&config, &cluster, 5);
}

#[test]
fn a_request_is_served_by_any_host_while_the_picked_endpoint_is_none_yet() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-14"})).unwrap();
    let _older = with_policy("clusters-14", &json!({"steering": "cluster"}), fewest_waiting(), &[0]);
    cluster.run();
    let newer = unready("clusters-14", &json!({"steering": "cluster"}));
    begin(&newer, snapshot_from("clusters-14", fewest_waiting(), 5, &[0]));
    let request = routed(&newer, None);
    assert_eq!(request.destinations(), Some(address(5)));
    assert_eq!(cluster.choose(Some(&request)), Some(address(1)));
    cluster.run();
    assert_eq!(cluster.choose(Some(&routed(&newer, None))), Some(address(5)));
}

#[test]
fn an_address_that_envoy_refuses_keeps_no_other_out() {
    let _turn = turn();
    let refused = vec![address(2), address(7)];
    let cluster = Cluster::refusing(&json!({"pool": "clusters-12"}), refused.clone()).unwrap();
    let config = with_policy("clusters-12", &json!({"steering": "cluster"}), fewest_waiting(), &[0; 9]);
    cluster.run();
    let expected: Vec<_> = (1..=9).map(address).filter(|address| !refused.contains(address)).collect();
    assert_eq!(cluster.hosts(), expected);
    config.agent.publish(snapshot("clusters-12", fewest_waiting(), &[0; 10]));
    cluster.run_until("a later host", |cluster| cluster.hosts().len() == 8);
}

/// The main thread's processor time to replace all endpoints of a pool.
fn time_to_replace(pool: &str, endpoints: usize) -> Duration {
    let idle = vec![0; endpoints];
    let cluster = Cluster::new(&json!({"pool": pool})).unwrap();
    let config = with_policy(pool, &json!({"steering": "cluster"}), fewest_waiting(), &idle);
    cluster.run();
    assert_eq!(cluster.hosts().len(), endpoints);
    let others = snapshot_from(pool, fewest_waiting(), endpoints + 1, &idle);
    config.agent.publish(others);
    let deadline = Instant::now() + DEADLINE;
    while !cluster.is_woken() {
        assert!(Instant::now() < deadline, "the cluster is not woken");
        std::thread::yield_now();
    }
    let run = || {
        let start = thread_time();
        cluster.run();
        thread_time().saturating_sub(start)
    };
    let mut took = run();
    // The next poll follows the adoption, after which the older hosts have left.
    config.agent.wait_until_taken();
    took += run();
    took
}

#[test]
fn the_time_to_replace_the_endpoints_of_a_pool_does_not_grow_with_their_square() {
    let _turn = turn();
    let small = time_to_replace("clusters-replaced-small", 3_000);
    let large = time_to_replace("clusters-replaced-large", 30_000);
    println!("3000 endpoints: {small:?}, 30 000: {large:?}");
    assert!(large < small * 40, "{small:?}, {large:?}");
}

#[test]
fn the_first_attempt_goes_to_the_pick_and_further_ones_to_any_ready_endpoint() {
    let _turn = turn();
    let config = ready("clusters-3", &json!({"steering": "cluster"}));
    let cluster = Cluster::new(&json!({"pool": "clusters-3"})).unwrap();
    let request = routed(&config, None);
    assert_eq!(cluster.choose(Some(&request)), Some(address(2)));
    let further: Vec<_> = (0..3).map(|_| cluster.choose(Some(&request)).unwrap()).collect();
    assert_eq!(further, [address(1), address(2), address(3)]);
    // A request that no picker saw.
    assert!(cluster.choose(None).is_some());
    let other = Request::chat(&config, 0);
    assert!(cluster.choose(Some(&other)).is_some());
}

#[test]
fn a_hint_is_never_left() {
    let _turn = turn();
    let config = ready("clusters-4", &json!({"steering": "cluster"}));
    let cluster = Cluster::new(&json!({"pool": "clusters-4"})).unwrap();
    let request = routed(&config, Some(&format!("{},{}", address(3), address(1))));
    assert_eq!(cluster.choose(Some(&request)), Some(address(1)));
    assert_eq!(cluster.choose(Some(&request)), Some(address(3)));
    assert_eq!(cluster.choose(Some(&request)), None);
}

#[test]
fn the_server_of_an_answer_is_known_from_its_attempt_and_those_before_it_are_avoided() {
    let _turn = turn();
    let policy = v1::Policy { avoid_failing_ms: 60_000, ..fewest_waiting() };
    let steering = json!({"steering": "cluster"});
    let config = with_policy("clusters-5", &steering, policy, &[10, 0, 20]);
    let cluster = Cluster::new(&json!({"pool": "clusters-5"})).unwrap();
    let request = routed(&config, None);
    assert_eq!(cluster.choose(Some(&request)), Some(address(2)));
    assert_eq!(cluster.choose(Some(&request)), Some(address(1)));
    request.set_attempts(2);
    // The property names another server; the balancer knows better.
    request.answer_headers(&address(3), &[(":status", "200")], false);
    let pool = ("pool", "clusters-5");
    config.wait_for("endpoint_picker.endpoint_in_flight", &[pool, ("endpoint", &address(1))], 1);
    config.wait_for("endpoint_picker.served_elsewhere", &[pool], 0);
    // The second one failed the request: neither the picker nor the balancer chooses it now.
    let next = routed(&config, None);
    assert_eq!(next.destinations(), Some(address(1)));
    let chosen: Vec<_> = (0..4).map(|_| cluster.choose(None).unwrap()).collect();
    assert!(!chosen.contains(&address(2)), "{chosen:?}");
}

#[test]
fn configurations_that_cannot_be_used_are_refused() {
    let _turn = turn();
    let no_address = json!({"pool": "p", "agent": {"addresses": []}});
    for refused in [json!({}), json!({"pool": 1}), json!({"pool": "p", "x": 1}), no_address] {
        assert!(Cluster::new(&refused).is_none(), "{refused}");
    }
}
