//! Several pools: weights, and a pool that cannot be picked from next to others.

use crate::fixture::{CHAT, GROUND, Models, backend, pool, route, rule};
use anyhow::ensure;
use endpoint_picker_harness::eventually::eventually;
use serde_json::json;
use std::collections::BTreeMap;

const REQUESTS: u32 = 400;
const SHARE: f64 = 0.7;

/// The prompt is always the same, so each pool picks one of its servers by what it has cached: round robin
/// would use all of them.
#[tokio::test(flavor = "multi_thread")]
async fn two_pools_share_requests_by_weight_and_each_picks_for_itself() {
    let _ground = GROUND.read().await;
    let rules = json!([rule("/", &[backend("large", 70), backend("small", 30)])]);
    let models = Models::new(&[("large", 3), ("small", 3)], &rules, CHAT).await;
    let [large, small] = [models.until_ready("large", 3).await, models.until_ready("small", 3).await];
    let prompt = "the same beginning ".repeat(200);
    eventually("both pools pick", async || {
        let pod = models.chat(CHAT, &prompt).await?;
        ensure!(small.contains(&pod), "{pod}");
        Ok(())
    })
    .await;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..REQUESTS {
        *counts.entry(models.chat(CHAT, &prompt).await.unwrap()).or_default() += 1;
    }
    println!("{counts:?}");
    let of = |pods: &[String]| -> u32 { pods.iter().filter_map(|pod| counts.get(pod)).sum() };
    assert_eq!(of(&large) + of(&small), REQUESTS);
    // Four standard deviations of a binomial distribution: one run in 16 000 is outside by chance.
    let bound = 4.0 * (f64::from(REQUESTS) * SHARE * (1.0 - SHARE)).sqrt();
    let expected = f64::from(REQUESTS) * SHARE;
    let difference = (f64::from(of(&large)) - expected).abs();
    assert!(difference <= bound, "{} of {REQUESTS} requests are {difference:.0} from {expected}", of(&large));
    assert_eq!(counts.len(), 2, "one server of each pool has the prompt: {counts:?}");
    models.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_that_are_missing_or_empty_do_not_disturb_others() {
    let _ground = GROUND.read().await;
    let models = Models::new(&[("chat", 2)], &json!([rule("/", &[backend("chat", 1)])]), CHAT).await;
    models.apply(&pool("empty")).await;
    let mut foreign = pool("foreign");
    foreign["spec"]["endpointPickerRef"] = json!({"name": "epp", "port": {"number": 9002}});
    models.apply(&foreign).await;
    let bad = ["empty", "foreign", "missing"];
    let rules: Vec<_> = bad.iter().map(|name| rule(&format!("/{name}"), &[backend(name, 1)])).collect();
    models.apply(&route("bad", &json!(rules))).await;
    for name in bad {
        let path = format!("/{name}{CHAT}");
        eventually(&format!("requests to the pool {name} are refused"), async || {
            let status = models.status(&path).await?;
            ensure!((500..=503).contains(&status), "{status}");
            anyhow::Ok(())
        })
        .await;
    }
    // The Gateway's other routes change as before.
    let rules = json!([rule("/later", &[backend("chat", 1)]), rule("/", &[backend("chat", 1)])]);
    models.apply(&route(crate::fixture::ROUTE, &rules)).await;
    eventually("the route is served", async || models.chat(&format!("/later{CHAT}"), "hello").await).await;
    models.chat(CHAT, "hello").await.unwrap();
    models.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_of_a_pool_whose_service_is_missing_fails_until_it_exists() {
    let _ground = GROUND.write().await;
    let rules = json!([rule("/", &[backend("good", 1), backend("broken", 1)])]);
    let models = Models::new(&[("good", 1), ("broken", 1)], &rules, CHAT).await;
    let api = "rbac.authorization.k8s.io";
    let reader = json!({"name": "services"});
    models
        .apply(&json!({
            "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": reader,
            "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}],
        }))
        .await;
    models
        .apply(&json!({
            "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": reader,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": reader["name"]},
            "subjects": [{"kind": "ServiceAccount", "namespace": "inference", "name": "endpoint-picker"}],
        }))
        .await;
    let flag = format!("--extension-picker-service={}/epp", models.namespace);
    models.extension.add_flag(&flag).await.unwrap();
    let mut broken = pool("broken");
    broken["spec"]["endpointPickerRef"] = json!({"name": "epp", "port": {"number": 9002}});
    models.apply(&broken).await;
    let outcomes = async || {
        let (mut served, mut refused) = (0, 0);
        for _ in 0..20 {
            match models.chat(CHAT, "hello").await {
                Ok(_) => served += 1,
                Err(error) => {
                    let error = error.to_string();
                    ensure!(error.contains("503") && error.contains("endpointPickerRef"), "{error}");
                    refused += 1;
                }
            }
        }
        anyhow::Ok((served, refused))
    };
    eventually("only requests to the pool are refused", async || {
        let (served, refused) = outcomes().await?;
        ensure!(served > 0 && refused > 0, "{served} served, {refused} refused");
        Ok(())
    })
    .await;
    models
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "epp"},
            "spec": {"clusterIP": "None", "ports": [{"port": 9002}]},
        }))
        .await;
    // No object that Envoy Gateway watches has changed.
    eventually("all requests are served", async || {
        let (_, refused) = outcomes().await?;
        ensure!(refused == 0, "{refused} refused");
        Ok(())
    })
    .await;
    models.remove().await;
}
