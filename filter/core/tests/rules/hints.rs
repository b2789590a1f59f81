//! Lists of all endpoints of a subset hint.

use endpoint_picker::request::Request;
use endpoint_picker::request::subset::Subset;
use serde_json::json;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, pod};

fn hinted() -> Request<'static> {
    let items = ["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000", "192.168.1.4:8000"];
    Request { subset: Subset::from_items(items), ..Request::default() }
}

#[test]
fn what_the_filters_drop_is_not_in_the_list() {
    let filter = json!({"conditions": [{"metric": "waiting-queue", "maxValue": 4}]});
    let config = json!({"plugins": [
        {"type": "queue-scorer"},
        {"type": "utilization-filter", "parameters": filter},
    ]});
    let pods = [3, 0, 10, 5, 1].map(|waiting| pod(waiting, 0.1, &[])).to_vec();
    assert_eq!(destinations(&Fixture::new(&config, pods).decide(&hinted(), 1)), [1, 0]);
}

#[test]
fn a_random_choice_is_followed_by_the_others_best_first() {
    let config = json!({"plugins": [{"type": "queue-scorer"}, {"type": "random-picker"}]});
    let pods = [3, 0, 10, 5, 1].map(|waiting| pod(waiting, 0.1, &[])).to_vec();
    for seed in 0..20 {
        let list = destinations(&Fixture::new(&config, pods.clone()).decide(&hinted(), seed));
        let mut others = vec![1, 0, 3, 2];
        others.retain(|&endpoint| endpoint != list[0]);
        assert_eq!(list[1..], others, "seed {seed}");
    }
}

#[test]
fn ranks_behind_one_port_of_their_server_are_one_destination() {
    let handler = json!({"type": "single-profile-handler", "parameters": {"primaryPort": 8000}});
    let config = json!({"plugins": [handler, {"type": "queue-scorer"}]});
    let at = |server: u8, port: u16| ([10, 0, 0, server], port).into();
    let addresses = vec![at(1, 8000), at(1, 8001), at(2, 8000), at(2, 8001), at(2, 8002)];
    let pods = [9, 5, 9, 1, 3].map(|waiting| pod(waiting, 0.1, &[])).to_vec();
    let mut fixture = Fixture::new(&config, pods).at(addresses);
    let hint = Subset::from_items(["10.0.0.1:8001", "10.0.0.2:8001", "10.0.0.2:8002"]);
    let decision = fixture.decide(&Request { subset: hint, ..Request::default() }, 1);
    assert_eq!(destinations(&decision), [2, 0], "each server once, best first");
}
