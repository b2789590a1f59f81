//! The module's own cluster.

use serde_json::json;

use crate::envoy::{Cluster, Config, Next, Request, Value};
use crate::pool::{address, fewest_waiting, ready, snapshot, turn, unready};

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

#[test]
fn its_hosts_are_the_pools_endpoints_from_the_first_snapshot_on() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-1"})).unwrap();
    assert_eq!(cluster.choose(None), None, "no pool");
    let config = unready("clusters-1", &json!({"steering": "cluster"}));
    let poll = config.callout("/v1/pools/clusters-1/snapshot");
    config.answer(&poll, Some(200), &snapshot("clusters-1", fewest_waiting(), &[1, 0]));
    cluster.run();
    assert_eq!(cluster.hosts(), [address(1), address(2)]);
    assert_eq!(Cluster::new(&json!({"pool": "clusters-1"})).unwrap().hosts(), [address(1), address(2)]);
}

#[test]
fn endpoints_that_left_the_pool_are_no_hosts_any_more() {
    let _turn = turn();
    let cluster = Cluster::new(&json!({"pool": "clusters-2"})).unwrap();
    let first = ready("clusters-2", &json!({"steering": "cluster"}));
    cluster.run();
    assert_eq!(cluster.hosts().len(), 3);
    drop(first);
    let _second =
        crate::pool::with_policy("clusters-2", &json!({"steering": "cluster"}), fewest_waiting(), &[0]);
    cluster.run();
    assert_eq!(cluster.hosts(), [address(1)]);
    assert_eq!(cluster.choose(None), Some(address(1)));
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
    let policy = endpoint_picker_wire::v1::Policy { avoid_failing_ms: 60_000, ..fewest_waiting() };
    let steering = json!({"steering": "cluster"});
    let config = crate::pool::with_policy("clusters-5", &steering, policy, &[10, 0, 20]);
    let cluster = Cluster::new(&json!({"pool": "clusters-5"})).unwrap();
    let request = routed(&config, None);
    assert_eq!(cluster.choose(Some(&request)), Some(address(2)));
    assert_eq!(cluster.choose(Some(&request)), Some(address(1)));
    // The property names another server; the balancer knows better.
    request.answer_headers(&address(3), &[(":status", "200")], false);
    let pool = ("pool", "clusters-5");
    config.wait_for("endpoint_picker.endpoint_in_flight", &[pool, ("endpoint", &address(1))], 1);
    // The second one failed the request: neither the picker nor the balancer chooses it now.
    let next = routed(&config, None);
    assert_eq!(next.destinations(), Some(address(1)));
    let chosen: Vec<_> = (0..4).map(|_| cluster.choose(None).unwrap()).collect();
    assert!(!chosen.contains(&address(2)), "{chosen:?}");
}

#[test]
fn configurations_that_cannot_be_used_are_refused() {
    let _turn = turn();
    for refused in [json!({}), json!({"pool": 1}), json!({"pool": "p", "x": 1})] {
        assert!(Cluster::new(&refused).is_none(), "{refused}");
    }
}
