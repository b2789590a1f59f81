//! Lists of models: the input is a model server's response to `GET /v1/models`, and the agent's list of base
//! models.
//!
//! The merged list of a listener has the models of the servers' lists, each once and in order.
#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;

use endpoint_picker_engine::body_routing::BaseModels;
use endpoint_picker_engine::model_list::ModelList;
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing;
use endpoint_picker_wire::v1;
use libfuzzer_sys::fuzz_target;
use metrics_agent_scrape::model_list;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    if let Ok(models) = BaseModels::decode(input) {
        let name = String::from_utf8_lossy(input);
        let base = models.base_of(&name).map(str::to_owned);
        // A base model has a base: itself, or the base of the adapter of its name.
        assert!(base.is_none_or(|base| models.base_of(&base).is_some()));
    }
    let Some(served) = model_list::read(input) else { return };
    assert!(served.len() <= 1024 && served.iter().all(|model| model.id.len() <= 256));
    let models: Vec<_> = served
        .iter()
        .map(|model| v1::ServedModel { id: model.id.clone(), is_adapter: model.is_adapter })
        .collect();
    let readings = [models.clone(), models.into_iter().rev().collect()]
        .map(|models| v1::Reading { models: Some(v1::ModelList { models }), ..testing::reading(0) });
    let topology = testing::topology("p", [1, 2], testing::fewest_waiting());
    let topology = Arc::new(Topology::compile(topology).expect("a good topology"));
    let view = Arc::new(PoolView::new(topology, testing::snapshot(readings), testing::START));
    let json = ModelList::default().json(testing::START, || vec![view]).expect("a pool with a snapshot");
    let list: Value = serde_json::from_slice(&json).expect("JSON");
    let listed =
        list["data"].as_array().expect("a list").iter().map(|model| model["id"].as_str().expect("a name"));
    let expected: BTreeSet<&str> = served.iter().map(|model| &*model.id).collect();
    assert!(listed.eq(expected));
});
