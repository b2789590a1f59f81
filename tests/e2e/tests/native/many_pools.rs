//! Hundreds of pools on one listener: threads, memory and time, and what is left when their routes go.

use anyhow::{Context, Result, ensure};
use endpoint_picker_e2e::fixture::DESTINATION;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::process_tree::{bytes, processes};
use endpoint_picker_harness::stack::Stack;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

const POOLS: usize = 200;

/// Routes with a configuration of each pool.
const ROUTES_OF_POOL: usize = 2;

/// The threads of the module: polls and reports, cached prefixes, shared changes, queues.
const THREADS: usize = 4;

/// Memory of Envoy for each pool that has one server and two workers, in bytes: three times what was
/// measured.
const BYTES_OF_POOL: u64 = 320 << 10;

/// All pools have the server with the label `side: left`.
fn manifests() -> String {
    let mut yaml = String::new();
    for number in 0..POOLS {
        let name = if number == 0 { "default".to_owned() } else { format!("pool-{number}") };
        let spec = "{ selector: { matchLabels: { side: left } }, targetPorts: [{ number: 8000 }] }";
        let _ = writeln!(
            yaml,
            "---\napiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{ name: {name} }}\nspec: {spec}"
        );
    }
    yaml
}

/// The route configuration of the first `pools` pools, as a file of Envoy's. `picker` is the filter in the
/// chain.
fn routes(picker: &Value, pools: usize) -> Result<Value> {
    let fields = picker["filter_config"]["value"].as_str().context("the picker's configuration")?;
    let fields: Value = serde_json::from_str(fields)?;
    let of_pool = |number: usize| {
        let mut fields = fields.clone();
        fields["pool"] = format!("pool-{number}").into();
        json!({"endpoint-picker": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute",
            "dynamic_module_config": picker["dynamic_module_config"],
            "filter_name": "endpoint-picker",
            "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": fields.to_string()},
        }})
    };
    let route = |pool: usize, number: usize| {
        json!({
            "match": {"prefix": format!("/{pool}/{number}/")},
            "route": {"cluster": "default", "prefix_rewrite": "/"},
            "typed_per_filter_config": of_pool(pool),
        })
    };
    let mut routes: Vec<Value> = (1..pools)
        .flat_map(|pool| (0..ROUTES_OF_POOL).map(move |number| (pool, number)))
        .map(|(pool, number)| route(pool, number))
        .collect();
    routes.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "default"}}));
    Ok(json!({"version_info": pools.to_string(), "resources": [{
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": "pools",
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
    }]}))
}

/// Envoy watches the folder of the file for moves.
fn write_routes(file: &Path, routes: &Value) {
    let next = file.with_extension("next");
    fs::write(&next, routes.to_string()).unwrap();
    fs::rename(next, file).unwrap();
}

/// Has the connection manager read its routes from this file.
fn routes_from(config: &mut Config, file: &Path) -> Result<()> {
    let manager = config.document().pointer_mut(MANAGER).context("a connection manager")?;
    manager.as_object_mut().context("fields")?.remove("route_config");
    manager["rds"] = json!({
        "route_config_name": "pools",
        "config_source": {"path_config_source": {"path": file.to_str().context("a path")?}},
    });
    Ok(())
}

/// The number of the module's threads by their names.
fn threads(stack: &Stack) -> BTreeMap<String, usize> {
    let mut threads = BTreeMap::new();
    for process in processes(stack.envoy().process_id()).unwrap() {
        for task in fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.starts_with("epp-") {
                *threads.entry(name.trim().to_owned()).or_default() += 1;
            }
        }
    }
    threads
}

fn memory(stack: &Stack) -> u64 {
    let envoy = processes(stack.envoy().process_id()).unwrap().pop().unwrap();
    bytes(envoy, "VmRSS").unwrap()
}

/// Waits until Envoy has taken a file of routes. Returns its number.
async fn taken(stack: &Stack, updates: u64) {
    eventually("Envoy has the routes", async || {
        let found = stack.envoy().stat("http.inference.rds.pools.update_success").await?;
        ensure!(found >= updates, "{found} updates of {updates}");
        anyhow::Ok(())
    })
    .await;
}

/// The pools of which the agent has a report of this proxy.
async fn reported(stack: &Stack) -> Result<usize> {
    let mut count = 0;
    for number in 1..POOLS {
        let url = format!("http://{}/v1/pools/pool-{number}", stack.agent_address());
        let pool: Value = client::http1().get(url).send().await?.json().await?;
        count += usize::from(pool["proxies"].as_array().is_some_and(|proxies| !proxies.is_empty()));
    }
    Ok(count)
}

/// Checks that the request to this path is picked, or that it is not.
async fn ensure_picked(stack: &Stack, path: &str, is_picked: bool) -> Result<()> {
    let echo: Value = client::http1().get(stack.url(path)).send().await?.json().await?;
    ensure!(echo["headers"][DESTINATION].is_string() == is_picked, "{path}: {}", echo["headers"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pools_share_threads_and_are_forgotten_with_their_routes() {
    let builder = Stack::builder().servers(2).manifests(&manifests()).one_eds_file_per_pool();
    let mut stack = builder.without_access_log().listeners_in_file().change(to_default).start().await;
    let file = stack.path("routes.yaml");
    let mut picker = Value::Null;
    stack
        .change_listeners(|config| {
            picker = config.picker()?["typed_config"].clone();
            write_routes(&file, &routes(&picker, 1)?);
            config.set_picker_field("pool", Value::Null)?;
            routes_from(config, &file)
        })
        .await;
    taken(&stack, 1).await;
    let before = memory(&stack);

    let all = routes(&picker, POOLS).unwrap();
    let begin = Instant::now();
    write_routes(&file, &all);
    taken(&stack, 2).await;
    let update = begin.elapsed();
    for pool in 1..POOLS {
        eventually("the pool picks", async || {
            ensure_picked(&stack, &format!("/{pool}/1/models"), true).await
        })
        .await;
    }
    let picking = begin.elapsed();
    let grown = memory(&stack).saturating_sub(before);
    let found = threads(&stack);
    println!(
        "{POOLS} pools, {} routes, {} KiB of routes: {update:?} until Envoy has them, {picking:?} until each has picked, \
         {} KiB of memory, threads {found:?}",
        (POOLS - 1) * ROUTES_OF_POOL,
        all.to_string().len() / 1024,
        grown / 1024
    );
    assert!(found.values().sum::<usize>() <= THREADS, "{found:?}");
    assert!(grown < BYTES_OF_POOL * POOLS as u64, "{grown} bytes");
    eventually("the agent has a report of each pool", async || {
        let count = reported(&stack).await?;
        ensure!(count == POOLS - 1, "{count}");
        anyhow::Ok(())
    })
    .await;

    // Every second time a pool leaves, and comes back.
    for updates in 3..6 {
        write_routes(&file, &routes(&picker, if updates % 2 == 1 { 2 } else { POOLS }).unwrap());
        taken(&stack, updates).await;
    }
    ensure_picked(&stack, "/1/0/models", true).await.unwrap();
    ensure_picked(&stack, "/7/0/models", false).await.unwrap();
    eventually("the agent has only the reports of the pool that is left", async || {
        let count = reported(&stack).await?;
        ensure!(count == 1, "{count}");
        anyhow::Ok(())
    })
    .await;
    let left = memory(&stack).saturating_sub(before);
    println!("{} KiB of memory with one pool", left / 1024);
    assert!(left < BYTES_OF_POOL * POOLS as u64, "pools that come back do not add up: {left} bytes");
    // An agent on a busy machine may respond too late, but it knows each pool.
    let log = stack.envoy().log().unwrap();
    let refused: Vec<_> =
        log.lines().filter(|line| line.contains("no snapshot") && !line.contains(": timeout")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Names the cluster as the pool, whose file of endpoints the agent writes.
fn to_default(config: &mut Config) -> Result<()> {
    let document = config.document();
    let cluster = &mut document["static_resources"]["clusters"][0];
    cluster["name"] = "default".into();
    let source = &mut cluster["eds_cluster_config"]["eds_config"]["path_config_source"]["path"];
    let path = source.as_str().context("a file of endpoints")?;
    *source = Path::new(path)
        .parent()
        .context("its folder")?
        .join("default.yaml")
        .to_str()
        .context("a path")?
        .into();
    let manager = document.pointer_mut(MANAGER).context("a connection manager")?;
    manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["cluster"] = "default".into();
    Ok(())
}
