//! The chart's installation and its end.

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::{Cluster, GatewayGround, Installation, POOL};
use std::collections::BTreeSet;

/// The kinds that the API server lists, in namespaces or outside of them, as kubectl takes them.
async fn kinds(cluster: &Cluster, namespaced: bool) -> String {
    let scope = format!("--namespaced={namespaced}");
    let kinds = cluster.kubectl(["api-resources", &scope, "--verbs=list", "--output=name"]).await.unwrap();
    // Events and metrics of what has ended go by themselves.
    let kinds: Vec<_> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    kinds.join(",")
}

/// All objects of these kinds, as `kind/name`.
async fn objects(cluster: &Cluster, kinds: &str, namespace: Option<&str>) -> BTreeSet<String> {
    let mut arguments = vec!["get", kinds, "--output=name", "--ignore-not-found"];
    arguments.extend(namespace.iter().flat_map(|namespace| ["--namespace", namespace]));
    cluster.kubectl(arguments).await.unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_chart_leaves_nothing_behind() {
    let ground = GatewayGround::shared().await;
    let installation = Installation::new(ground, Filter::Wasm, 1).await;
    let namespace = installation.namespace().to_owned();
    let of_the_release = |object: &String| object.contains(POOL) || object.contains("endpoint-picker");
    let mine = |object: &String| object.contains(&namespace);
    let cluster = ground.cluster();
    let (in_namespaces, cluster_wide) = (kinds(cluster, true).await, kinds(cluster, false).await);

    let with: BTreeSet<_> =
        objects(cluster, &in_namespaces, Some(&namespace)).await.into_iter().filter(of_the_release).collect();
    for kind in
        ["deployment.apps/", "serviceaccount/", "role.rbac.authorization.k8s.io/", "service/", "secret/"]
    {
        assert!(with.iter().any(|object| object.starts_with(kind)), "the release has no {kind}: {with:?}");
    }
    installation.uninstall().await;
    eventually("nothing of the release is left", async || {
        let mut left = objects(cluster, &in_namespaces, Some(&namespace)).await;
        left.retain(of_the_release);
        let outside = objects(cluster, &cluster_wide, None).await;
        left.extend(outside.into_iter().filter(|object| mine(object) && !object.starts_with("namespace/")));
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let answer = client::http1().get(installation.url("/")).send().await;
    assert!(answer.is_err(), "the Gateway still answers: {answer:?}");
    cluster.delete_namespace(&namespace).await.unwrap();
}
