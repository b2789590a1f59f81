//! The list of models that the module sends itself.

use endpoint_picker_wire::{Message as _, v1};
use serde_json::{Value, json};

use crate::envoy::{Config, Next, Request, Route};
use crate::pool::{Agent, fewest_waiting, snapshot, turn};

fn get(config: &Config, path: &str) -> Request {
    Request::new(config, 0, &[(":method", "GET"), (":path", path), (":authority", "h")])
}

#[test]
fn the_chain_responds_with_the_models_of_its_pools_once_it_knows_them() {
    let _turn = turn();
    let agent = Agent::start();
    let config =
        Config::new(&json!({"pool": null, "listModels": ["listed"], "agent": agent.access()})).unwrap();
    assert_eq!(get(&config, "/v1/models").headers(true), Next::Continue, "without a snapshot");

    let served = v1::ModelList { models: vec![v1::ServedModel { id: "lora".to_owned(), is_adapter: true }] };
    let mut published = v1::Snapshot::decode(&*snapshot("listed", fewest_waiting(), &[0, 0])).unwrap();
    published.readings[1].models = Some(served);
    agent.publish(published.encode_to_vec());
    agent.wait_until_taken();
    let request = get(&config, "/v1/models?limit=2");
    assert_eq!(request.headers(true), Next::Hold);
    let reply = request.reply().unwrap();
    assert_eq!((reply.status, &*reply.headers["content-type"]), (200, "application/json"));
    let list: Value = serde_json::from_str(&reply.body).unwrap();
    let names: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["lora", "m"]);
    for (path, ends) in [("/v1/models", false), ("/v1/models/lora", true)] {
        assert_eq!(get(&config, path).headers(ends), Next::Continue, "{path}");
    }
}

#[test]
fn the_setting_is_refused_for_a_route_without_pools_and_without_agents() {
    let _turn = turn();
    let agent = json!({"addresses": ["http://127.0.0.1:9"]});
    for fields in [
        json!({"listModels": ["p"]}),
        json!({"listModels": [], "agent": agent}),
        json!({"listModels": true, "agent": agent}),
    ] {
        let mut config = json!({"pool": null});
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert!(Config::new(&config).is_none(), "{config}");
    }
    assert!(Route::new(&json!({"pool": null, "listModels": ["p"], "agent": agent})).is_none());
}
