//! Every configuration that is shipped, or shown in a document, is used. One without a check fails.

use anyhow::{Context, Result, bail, ensure};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER, Places};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::shipped::snippets::{self, Snippet};
use endpoint_picker_harness::tools;
use metrics_agent_sources::endpoints;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Maximum time until the statistics of a picker that has just started have its first counts.
const COUNTED: Duration = Duration::from_secs(10);

/// Checked by tests of their own: the secured agent's need certificates, two pools a file of endpoints each,
/// and a compose file is not Envoy's.
const STARTED_ELSEWHERE: [&str; 4] = [
    "examples/compose/compose.yaml",
    "examples/secured-agent/differences.yaml",
    "examples/secured-agent/token.yaml",
    "examples/two-pools/differences.yaml",
];

/// The example of a setting that only the native module has.
const OF_NATIVE_MODULE: &str = "examples/resume-streams";

#[tokio::test(flavor = "multi_thread")]
async fn every_configuration_in_a_document_works() {
    let snippets = snippets::of_documents().unwrap();
    let places: Vec<_> = snippets.iter().map(|snippet| snippet.at.as_str()).collect();
    for document in
        ["docs/install/envoy.md:", "docs/install/from-the-epp.md:", "docs/operate/observability/README.md:"]
    {
        assert!(places.iter().any(|at| at.starts_with(document)), "{document} has none: {places:?}");
    }
    all_work(snippets).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shipped_file_works() {
    let files = snippets::of_files().unwrap();
    let (started_elsewhere, files): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| STARTED_ELSEWHERE.contains(&file.at.as_str()));
    assert_eq!(started_elsewhere.len(), STARTED_ELSEWHERE.len());
    assert!(files.iter().any(|file| file.at == "envoy.yaml"), "{files:?}");
    all_work(files).await;
}

async fn all_work(snippets: Vec<Snippet>) {
    let mut faults = Vec::new();
    for snippet in snippets {
        if let Err(fault) = works(&snippet).await {
            faults.push(format!("{}: {fault:?}", snippet.at));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Gives the configuration to whom it is for.
async fn works(snippet: &Snippet) -> Result<()> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&snippet.text)?;
    let first = documents.first().context("it is empty")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("snippet.yaml");
    fs::write(&file, &snippet.text)?;
    let has = |field: &str| first.get(field).is_some();
    if let Some(example) = snippet.at.strip_suffix("/differences.yaml") {
        start(example, Filter::Native, &folder.path().join("native"), |_| Ok(())).await?;
        if example == OF_NATIVE_MODULE {
            return Ok(());
        }
        start(example, Filter::Wasm, &folder.path().join("wasm"), |_| Ok(())).await
    } else if has("static_resources") {
        let is_of_document = snippet.at.contains(".md:");
        for filter in [Filter::Native, Filter::Wasm] {
            if filter == Filter::Wasm && !snippet.text.contains("vm_config") {
                continue;
            }
            let config = if is_of_document {
                Config::installed(&snippet.text, filter)
            } else {
                Config::converted(&snippet.at, filter)
            };
            start_config(config?, &folder.path().join(filter.to_string()), |_| Ok(())).await?;
        }
        Ok(())
    } else if first
        .as_array()
        .is_some_and(|items| items.iter().all(|item| item.get("typed_config").is_some()))
    {
        start("envoy.yaml", Filter::Wasm, folder.path(), |config| put_filters(config, first)).await
    } else if first.pointer("/0/cluster_type").is_some() {
        start("envoy.yaml", Filter::Native, folder.path(), |config| put_module_cluster(config, first)).await
    } else if has("pool") && has("endpoints") {
        // The configuration of a picker without an agent.
        let endpoints: Vec<SocketAddr> = serde_json::from_value(first["endpoints"].clone())?;
        start("envoy.yaml", Filter::Native, folder.path(), |config| config.list_endpoints(&endpoints)).await
    } else if let Some(agent) = first.get("agent").filter(|agent| agent.get("addresses").is_some()) {
        // The configuration of the module without a pool.
        start("envoy.yaml", Filter::Native, folder.path(), |config| {
            config.set_picker_field("agent", agent.clone())
        })
        .await
    } else if has("tracing") {
        start("envoy.yaml", Filter::Wasm, folder.path(), |config| put_tracing(config, first)).await
    } else if has("apiVersion") {
        run(Command::new(tools::metrics_agent()?).args(["check", "--allow-experimental-plugins"]).arg(&file))
    } else if has("endpoints") {
        endpoints::parse(snippet.text.as_bytes())?;
        Ok(())
    } else if has("scrape_configs") {
        run(promtool(&["check", "config"], &snippet.at).arg(&file))
    } else if has("groups") {
        run(promtool(&["check", "rules"], &snippet.at).arg(&file))
    } else if ["pools", "gateway", "networkPolicy", "resources"].into_iter().any(has) {
        // Values of the chart, and kustomizations: parts of a whole that `make check-deploy` renders.
        Ok(())
    } else if has("rule_files") {
        run(promtool(&["test", "rules"], &snippet.at).arg(tools::root().join(&snippet.at)))
    } else {
        bail!("it has no check: add one here")
    }
}

/// promtool, in the folder of what it is to look at.
fn promtool(what: &[&str], at: &str) -> Command {
    let mut command = Command::new("promtool");
    let folder = Path::new(at).parent().unwrap_or(Path::new(""));
    command.args(what).current_dir(tools::root().join(folder));
    command
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let advice =
        "promtool comes with `make test-tools` (into .tools/bin) or Prometheus, the agent with `make build`";
    let output = command.output().with_context(|| format!("{program} does not start; {advice}"))?;
    let output_text = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output_text));
    Ok(())
}

/// Starts Envoy with a shipped configuration and a change to it.
async fn start(
    path: &str,
    filter: Filter,
    folder: &Path,
    change: impl FnOnce(&mut Config) -> Result<()>,
) -> Result<()> {
    start_config(Config::converted(path, filter)?, folder, change).await
}

async fn start_config(
    config: Config,
    folder: &Path,
    change: impl FnOnce(&mut Config) -> Result<()>,
) -> Result<()> {
    fs::create_dir_all(folder.join(EDS_FOLDER))?;
    write_eds(&folder.join(EDS_FILE), &["127.0.0.1:1".parse()?])?;
    let mut config = config.placed(Places { port: 0, admin_port: 0, agent_port: 1, folder })?;
    config.set_picker_module(&config.filter().module()?)?;
    change(&mut config)?;
    let mut envoy = Envoy::start(&config, folder, 1).await?;
    envoy.check_running()?;
    let log = envoy.log()?;
    ensure!(!log.contains("refused: "), "{log}");
    // Its new place is not one for Envoy before 1.40.
    let is_known = |line: &&str| line.contains("PluginConfig.capability_restriction_config");
    let deprecated = log.lines().filter(|line| line.contains("Deprecated field") && !is_known(line));
    ensure!(deprecated.clone().next().is_none(), "{}", deprecated.collect::<Vec<_>>().join("\n"));
    // The picker runs, and counts the polls that fail once a second.
    let counts = async || {
        ensure!(envoy.admin_text("/stats").await?.contains("endpoint_picker"), "no picker runs");
        anyhow::Ok(())
    };
    within(COUNTED, counts).await.map_err(anyhow::Error::msg)
}

/// Puts filters before the router in place of all others, or before these if no picker is among them.
fn put_filters(config: &mut Config, filters: &Value) -> Result<()> {
    let mut filters = filters.as_array().context("a list")?.clone();
    for (form, place) in [
        (Filter::Wasm, "/typed_config/config/vm_config/code/local/filename"),
        (Filter::Native, "/typed_config/dynamic_module_config/module/local/filename"),
    ] {
        let module = form.module()?;
        for file in filters.iter_mut().filter_map(|filter| filter.pointer_mut(place)) {
            *file = module.to_str().context("UTF-8")?.into();
        }
    }
    let is_picker =
        |filter: &Value| filter["name"].as_str().is_some_and(|name| name.starts_with("endpoint-picker"));
    let has_picker = filters.iter().any(is_picker);
    let shipped = manager(config)?["http_filters"].as_array_mut().context("HTTP filters")?;
    // Without a picker they are for the place before it.
    let rest = if has_picker { shipped.len().saturating_sub(1) } else { 0 };
    filters.extend(shipped.drain(rest..));
    *shipped = filters;
    Ok(())
}

/// Puts a cluster of the native module in the place of the shipped one of its name.
fn put_module_cluster(config: &mut Config, clusters: &Value) -> Result<()> {
    let mut cluster = clusters[0].clone();
    let module = cluster.pointer_mut("/cluster_type/typed_config/dynamic_module_config");
    let path = Filter::Native.module()?;
    *module.context("a module")? = json!({"module": {"local": {"filename": path}}, "do_not_close": true});
    config.set_picker_field("steering", "cluster".into())?;
    let shipped = config.document()["static_resources"]["clusters"].as_array_mut().context("clusters")?;
    shipped.retain(|shipped| shipped["name"] != cluster["name"]);
    shipped.push(cluster);
    Ok(())
}

/// Adds the fields to the connection manager, and the cluster that they name.
fn put_tracing(config: &mut Config, fields: &Value) -> Result<()> {
    let cluster = fields.pointer("/tracing/provider/typed_config/grpc_service/envoy_grpc/cluster_name");
    let cluster = cluster.context("a cluster to trace to")?.clone();
    manager(config)?["tracing"] = fields["tracing"].clone();
    let clusters = config.document()["static_resources"]["clusters"].as_array_mut().context("clusters")?;
    let mut collector = clusters
        .iter()
        .find(|cluster| cluster["name"] == "metrics-agent")
        .context("a static cluster")?
        .clone();
    collector["name"] = cluster.clone();
    collector["load_assignment"]["cluster_name"] = cluster;
    clusters.push(collector);
    Ok(())
}

fn manager(config: &mut Config) -> Result<&mut Value> {
    let manager = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    config.document().pointer_mut(manager).context("no connection manager")
}
