//! A filter that is off in the chain, and routes that name pools: the route that a request has in the end
//! decides.

use anyhow::{Context, Result};
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, forget_requests, fresh_chat};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// The header by which a client chooses a route.
const ROUTE: &str = "x-route";

/// The header that has the filter before the picker change the route to `embeddings`: with the `head` or with
/// the `body`.
const CHANGE: &str = "x-change";

const CHANGES_ROUTE: &str = r#"
function envoy_on_request(request)
  local change = request:headers():get("x-change")
  if change == "body" then
    -- The head has passed when the loop begins.
    for chunk in request:bodyChunks() do end
  end
  if change ~= nil then
    request:streamInfo():dynamicMetadata():set("test", "route", "embeddings")
    request:clearRouteCache()
  end
end
"#;

/// The filter behind the picker has Envoy find the route once more.
const CLEARS_ROUTE: &str = "function envoy_on_request(request) request:clearRouteCache() end";

/// Share of the pool `chat` in the route with weights, in percent.
const CHAT_WEIGHT: u32 = 70;

/// Requests over that route.
const SPLIT: usize = 400;

/// Six standard deviations of the binomial distribution: of a right split, one run in 500 million exceeds it.
const SPLIT_BOUND: f64 = 6.0 * 9.17;

fn lua(name: &str, code: &str) -> Value {
    json!({"name": name, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": code},
    }})
}

/// The per-route configuration with the picker of a pool.
pub(crate) type OfPool<'a> = dyn Fn(&str) -> Value + 'a;

/// Puts these routes into `examples/two-pools`, of which each may have a pool, and in the chain a picker with
/// these fields in place of its own and `agent`. Returns the filters, of which that picker is the first.
pub(crate) fn pools_by_route<'a>(
    config: &'a mut Config,
    chain: &Value,
    routes: impl FnOnce(&OfPool<'_>) -> Value,
) -> Result<&'a mut Vec<Value>> {
    let manager = config.document().pointer_mut(MANAGER).context("a connection manager")?;
    let filters = manager["http_filters"].as_array_mut().context("filters")?;
    let shipped: Value = filters[0]["typed_config"].clone();
    let fields = shipped["filter_config"]["value"].as_str().context("the picker's configuration")?;
    let fields: Value = serde_json::from_str(fields)?;
    let with = |fields: &Value| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": fields.to_string()});
    let mut in_chain = shipped.clone();
    let mut of_chain = chain.clone();
    of_chain["agent"] = fields["agent"].clone();
    in_chain["filter_config"] = with(&of_chain);
    filters.retain(|filter| filter["typed_config"]["filter_name"] != "endpoint-picker");
    filters.insert(0, json!({"name": "endpoint-picker", "typed_config": in_chain}));

    let of_pool = |pool: &str| {
        let mut fields = fields.clone();
        fields["pool"] = pool.into();
        json!({"endpoint-picker": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute",
            "dynamic_module_config": shipped["dynamic_module_config"],
            "filter_name": "endpoint-picker",
            "filter_config": with(&fields),
        }})
    };
    manager["route_config"]["virtual_hosts"][0]["routes"] = routes(&of_pool);
    manager["http_filters"].as_array_mut().context("filters")
}

/// One picker that is off, and routes that a client or another filter chooses.
fn routes_by_header(config: &mut Config) -> Result<()> {
    let filters = pools_by_route(config, &json!({"pool": null}), routes)?;
    filters.insert(0, lua("changes-route", CHANGES_ROUTE));
    filters.insert(2, lua("clears-route", CLEARS_ROUTE));
    Ok(())
}

fn routes(of_pool: &OfPool<'_>) -> Value {
    let by_header =
        |route: &str| json!({"prefix": "/", "headers": [{"name": ROUTE, "string_match": {"exact": route}}]});
    let is_changed = json!({"prefix": "/", "dynamic_metadata": [
        {"filter": "test", "path": [{"key": "route"}], "value": {"string_match": {"exact": "embeddings"}}},
    ]});
    let weighted = |pool: &str, weight: u32| json!({"name": pool, "weight": weight, "typed_per_filter_config": of_pool(pool)});
    json!([
        {"match": is_changed, "route": {"cluster": "embeddings"}, "typed_per_filter_config": of_pool("embeddings")},
        {"match": by_header("off"), "route": {"cluster": "chat"}},
        {"match": by_header("embeddings"), "route": {"cluster": "embeddings"}, "typed_per_filter_config": of_pool("embeddings")},
        {"match": by_header("split"), "route": {"weighted_clusters": {
            "clusters": [weighted("chat", CHAT_WEIGHT), weighted("embeddings", 100 - CHAT_WEIGHT)],
        }}},
        {"match": {"prefix": "/"}, "route": {"cluster": "chat"}, "typed_per_filter_config": of_pool("chat")},
    ])
}

/// The pools of `examples/two-pools`: the servers 0 and 2 are the pool `chat`, the servers 1 and 3 the pool
/// `embeddings`.
pub(crate) fn pools() -> String {
    let pools = fs::read_to_string(tools::root().join("examples/two-pools/pools.yaml")).unwrap();
    pools.replace("serves: chat", "side: left").replace("serves: embeddings", "side: right")
}

/// The servers 2 and 1 are the best of their pools.
async fn start() -> Stack {
    let builder = Stack::builder().servers(4).config("examples/two-pools").manifests(&pools());
    let stack = builder.one_eds_file_per_pool().change(routes_by_header).start().await;
    for (index, server) in stack.servers().iter().enumerate() {
        server.update_metrics(|metrics| metrics.waiting = if [1, 2].contains(&index) { 0 } else { 50 });
    }
    for (route, best) in [("chat", 2), ("embeddings", 1)] {
        eventually("requests go to the best server of the route's pool", async || {
            for _ in 0..10 {
                let served = send(&stack, &[(ROUTE, route)]).await;
                anyhow::ensure!(served == best, "{route}: {served}");
            }
            anyhow::Ok(())
        })
        .await;
    }
    forget_requests(&stack);
    stack
}

/// The server of a new chat with these headers.
async fn send(stack: &Stack, headers: &[(&str, &str)]) -> usize {
    let mut request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
    for &(name, value) in headers {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{headers:?}");
    stack.served_by(&response)
}

/// The picks that the servers have seen since the last call, each checked to be the server itself.
fn picks(stack: &Stack) -> usize {
    let mut picks = 0;
    for server in stack.servers() {
        for request in server.take_requests() {
            if let Some(picked) = request.header(DESTINATION) {
                assert_eq!(picked, server.endpoint());
                picks += 1;
            }
        }
    }
    picks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_off_passes_requests_and_each_route_has_the_state_of_its_pool() {
    let stack = start().await;
    let routed = |pool: &str| format!("routed{{pool=\"{pool}\"}}");
    let count = async |pool: &str| statistics(&stack).await.count(&routed(pool));
    // All are counted before the test's own. The first ones may have come before a snapshot.
    let is_settled = async || {
        let total = stack.envoy().stat("http.inference.downstream_rq_completed").await?;
        let statistics = statistics(&stack).await;
        let early = |pool: &str| format!("abstained{{pool=\"{pool}\",reason=\"no_snapshot\"}}");
        let of = |pool: &str| statistics.count(&routed(pool)) + statistics.count(&early(pool));
        let counted = of("chat") + of("embeddings");
        anyhow::ensure!(counted == total, "{counted} of {total} are counted");
        anyhow::Ok(())
    };
    eventually("requests until now are counted", is_settled).await;
    let before = [count("chat").await, count("embeddings").await];

    for _ in 0..20 {
        assert!(send(&stack, &[(ROUTE, "off"), (DESTINATION, "10.9.9.9:1")]).await.is_multiple_of(2));
        assert_eq!(picks(&stack), 0);
    }
    for _ in 0..10 {
        assert_eq!(send(&stack, &[(ROUTE, "chat")]).await, 2);
        assert_eq!(send(&stack, &[(ROUTE, "embeddings")]).await, 1);
    }
    assert_eq!(picks(&stack), 20);
    for (pool, before) in ["chat", "embeddings"].into_iter().zip(before) {
        eventually("only requests of routes with a picker are counted", async || {
            match count(pool).await - before {
                10 => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
    let log = stack.envoy().log().unwrap();
    assert!(!log.contains("[warning][dynamic_modules] endpoint picker"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_weighted_clusters_is_picked_by_its_own_pool() {
    let stack = start().await;
    let mut counts = [0; 4];
    for _ in 0..SPLIT {
        counts[send(&stack, &[(ROUTE, "split")]).await] += 1;
    }
    assert_eq!((counts[0], counts[3]), (0, 0), "each pool picks by its readings: {counts:?}");
    assert_eq!(
        picks(&stack),
        SPLIT,
        "the cluster is the one of the pool that has picked, also when the route is found again"
    );
    let expected = SPLIT as f64 * f64::from(CHAT_WEIGHT) / 100.0;
    assert!((f64::from(counts[2]) - expected).abs() < SPLIT_BOUND, "{counts:?} of {SPLIT}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_before_the_picker_changes_the_route_and_with_it_the_pool() {
    let stack = start().await;
    for (route, change) in [("chat", "head"), ("chat", "body"), ("off", "head"), ("split", "body")] {
        for _ in 0..10 {
            assert_eq!(send(&stack, &[(ROUTE, route), (CHANGE, change)]).await, 1, "{route}, {change}");
        }
        assert_eq!(picks(&stack), 10, "{route}, {change}");
    }
    // Envoy has sent the head over the first route when the body changes it.
    for _ in 0..10 {
        assert!(send(&stack, &[(ROUTE, "off"), (CHANGE, "body")]).await.is_multiple_of(2));
    }
    assert_eq!(picks(&stack), 0);
}
