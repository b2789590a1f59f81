//! The list of the models of a listener's pools, which the module sends itself.

use anyhow::ensure;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{MODEL, SERVED_BY};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::clusters::{TWO_POOLS, own_cluster_with};

/// A rewrite in the pool `second`, and a configuration by which the models of servers are read.
const OBJECTS: &str = "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: { name: alias }
spec:
  poolRef: { name: second }
  rules:
    - matches: [{ model: { type: Exact, value: alias } }]
      targets: [{ modelRewrite: other }]
---
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - { type: models-data-source }
  - { type: models-data-extractor }
  - { type: queue-scorer }
  - { type: max-score-picker }
dataLayer: { sources: [{ pluginRef: models-data-source, extractors: [{ pluginRef: models-data-extractor }] }] }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_lists_the_models_of_its_pools_and_follows_their_changes() {
    let manifests = [TWO_POOLS, OBJECTS].join("---");
    let builder = Stack::builder().servers(2).manifests(&manifests).one_eds_file_per_pool();
    let builder =
        builder.picker_field("steering", "cluster").change(|config| own_cluster_with(config, &["pool"]));
    let stack = builder.picker_field("listModels", json!(["default", "second"])).start().await;
    let lists = async |expected: &[&str]| {
        let response = client::http1().get(stack.url("/v1/models")).send().await?;
        ensure!(response.status() == StatusCode::OK && !response.headers().contains_key(SERVED_BY));
        let list: Value = response.json().await?;
        let models = list["data"].as_array().unwrap();
        let names: Vec<_> = models.iter().map(|model| model["id"].as_str().unwrap()).collect();
        ensure!(names == expected, "{names:?}");
        anyhow::Ok(())
    };
    eventually("both pools' models are listed", async || lists(&["alias", MODEL]).await).await;
    stack.set_manifests(&manifests.replace("value: alias", "value: later"));
    eventually("the rewrite's new model is listed", async || lists(&[MODEL, "later"]).await).await;
    let others = client::http1().get(stack.url("/v1/models/one")).send().await.unwrap();
    assert!(others.headers().contains_key(SERVED_BY), "another path is a server's");
}
