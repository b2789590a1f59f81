//! Routes that name the pool in their metadata.

use anyhow::{Context, Result};
use endpoint_picker_e2e::fixture::DESTINATION;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::stack::Stack;
use serde_json::{Value, json};

const ROUTES: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";

/// Lets the shipped route name the pool, and adds one that names another pool and one that names none.
fn name_pools(config: &mut Config) -> Result<()> {
    let routes = config.document().pointer_mut(ROUTES).and_then(Value::as_array_mut).context("routes")?;
    let shipped = routes.first().context("a route")?.clone();
    let naming = |prefix: &str, pool: &str| {
        let mut route = shipped.clone();
        route["match"]["prefix"] = prefix.into();
        route["metadata"] = json!({"filter_metadata": {"endpoint-picker": {"pool": pool}}});
        route
    };
    let mut unnamed = shipped.clone();
    unnamed["match"]["prefix"] = "/unnamed".into();
    *routes = vec![naming("/other", "other"), unnamed, naming("/", "default")];
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requests_of_routes_that_name_the_pool_are_picked() {
    let stack = Stack::builder().picker_field("routeMetadata", true).change(name_pools).start().await;
    for (path, is_picked) in [("/named", true), ("/other", false), ("/unnamed", false)] {
        for _ in 0..5 {
            let response = client::http1().get(stack.url(path)).send().await.unwrap();
            let echo: Value = response.error_for_status().unwrap().json().await.unwrap();
            assert_eq!(echo["headers"][DESTINATION].is_string(), is_picked, "{path}: {echo}");
        }
    }
}
