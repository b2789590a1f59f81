//! Pods that come, leave and change under load.

use crate::fixture::{CHAT, GROUND, Models, backend, rule};
use endpoint_picker_kube::Load;
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_pods_are_created_relabelled_and_deleted() {
    let _ground = GROUND.read().await;
    let models = Models::new(&[("chat", 3)], &json!([rule("/", &[backend("chat", 1)])]), CHAT).await;
    let load = Load::start(&models.url(CHAT), 4, Duration::from_millis(5));

    models.scale("chat", 4).await;
    let ready = models.until_ready("chat", 4).await;
    // The pod stays ready, and is of the pool no longer.
    models.kubectl(&["label", "pod", &ready[0], "app=other", "--overwrite"]).await.unwrap();
    models.until_ready("chat", 3).await;
    models.kubectl(&["label", "pod", &ready[0], "app=chat", "--overwrite"]).await.unwrap();
    models.until_ready("chat", 4).await;
    models.kubectl(&["delete", "pod", &ready[1], "--wait=false"]).await.unwrap();
    models.until_ready("chat", 4).await;
    models.scale("chat", 2).await;
    let ready = models.until_ready("chat", 2).await;

    let answers = load.stop().await;
    answers.assert_none_lost();
    for pod in ready {
        assert!(answers.by_pod().contains_key(pod.as_str()), "{pod} got no request: {:?}", answers.by_pod());
    }
    models.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_agents_are_replaced() {
    let _ground = GROUND.write().await;
    let models = Models::new(&[("chat", 2)], &json!([rule("/", &[backend("chat", 1)])]), CHAT).await;
    let load = Load::start(&models.url(CHAT), 2, Duration::from_millis(10));
    models.extension.upgrade(&json!({"agent": {"podAnnotations": {"test/version": "next"}}})).await.unwrap();
    // The new agents are those that Envoy Gateway and the module use.
    models.scale("chat", 3).await;
    let ready = models.until_ready("chat", 3).await;
    let answers = load.stop().await;
    answers.assert_none_lost();
    endpoint_picker_harness::eventually::eventually("each server is picked", async || {
        let load = Load::start(&models.url(CHAT), 4, Duration::from_millis(1));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answers = load.stop().await;
        let by_pod = answers.by_pod();
        if ready.iter().all(|pod| by_pod.contains_key(pod.as_str())) {
            Ok(())
        } else {
            Err(format!("{by_pod:?}"))
        }
    })
    .await;
    models.remove().await;
}
