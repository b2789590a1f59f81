//! The merged list of the models of several pools.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker_engine::model_list::ModelList;
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing;
use endpoint_picker_wire::v1;
use serde_json::Value;

use crate::fixture::{START, fewest_waiting};

/// A pool of two servers that list these models.
fn view(policy: v1::Policy, models: [&[&str]; 2]) -> Arc<PoolView> {
    let topology = Arc::new(Topology::compile(testing::topology("p", [1, 2], policy)).unwrap());
    let model = |id: &&str| v1::ServedModel { id: (*id).to_owned(), is_adapter: false };
    let readings = models.map(|ids| {
        let models = v1::ModelList { models: ids.iter().map(model).collect() };
        v1::Reading { models: Some(models), ..testing::reading(0) }
    });
    Arc::new(PoolView::new(topology, testing::snapshot(readings), START))
}

/// The names in a new list of these pools.
fn names(views: &[Arc<PoolView>]) -> Option<Vec<String>> {
    let json = ModelList::default().json(START, || views.to_vec())?;
    let list: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(list["object"], "list");
    let models = list["data"].as_array().unwrap();
    assert!(models.iter().all(|model| model["object"] == "model" && model["created"] == 0), "{list}");
    Some(models.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn a_list_has_the_models_of_servers_and_rewrites_of_all_pools_once() {
    let rule = |models: &[&str]| v1::RewriteRule {
        resource: "rule".to_owned(),
        models: models.iter().map(|&model| model.to_owned()).collect(),
        targets: vec![v1::Target { model: "base".to_owned(), weight: None }],
    };
    let mut rewriting = fewest_waiting();
    rewriting.rewrite_rules = vec![rule(&["alias"]), rule(&[])];
    let pools =
        [view(rewriting, [&["base", "lora"], &["base"]]), view(fewest_waiting(), [&[], &["embed", "lora"]])];
    assert_eq!(names(&pools).unwrap(), ["alias", "base", "embed", "lora"]);
}

#[test]
fn inference_models_take_the_place_of_the_servers_models() {
    let mut policy = fewest_waiting();
    policy.inference_models =
        vec![v1::InferenceModel { name: "chat".to_owned(), ..v1::InferenceModel::default() }];
    assert_eq!(names(&[view(policy, [&["base"], &["base"]])]).unwrap(), ["chat"]);
}

#[test]
fn pools_without_a_snapshot_have_no_list_and_a_list_is_bounded() {
    let unknown = Arc::new(PoolView::default());
    assert_eq!(names(&[Arc::clone(&unknown)]), None);
    let many: Vec<String> = (0..5000).map(|number| format!("model-{number:04}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let names = names(&[unknown, view(fewest_waiting(), [&many, &[]])]).unwrap();
    assert_eq!((names.len(), &*names[4095]), (4096, "model-4095"));
}

#[test]
fn a_list_is_made_again_after_a_second() {
    let mut list = ModelList::default();
    let mut json = |after: u64, models: &[&str]| {
        let views = || vec![view(fewest_waiting(), [models, &[]])];
        String::from_utf8(list.json(START + Duration::from_millis(after), views).unwrap().to_vec()).unwrap()
    };
    let first = json(0, &["a"]);
    assert_eq!(json(999, &["b"]), first);
    assert!(json(1000, &["b"]).contains(r#""id":"b""#));
}

#[test]
fn only_a_get_of_the_path_asks_for_the_list() {
    let asks = |method: &str, path: &str| {
        let headers: HeaderList = [(":method", method), (":path", path)].into_iter().collect();
        ModelList::is_requested(Headers(&headers))
    };
    assert!(asks("GET", "/v1/models") && asks("GET", "/v1/models?limit=1"));
    for (method, path) in
        [("POST", "/v1/models"), ("HEAD", "/v1/models"), ("GET", "/v1/models/a"), ("GET", "/models")]
    {
        assert!(!asks(method, path), "{method} {path}");
    }
}
