//! The files of docs/operate/observability and docs/reference/metrics.md match the agent's and the filter's
//! metrics.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use endpoint_picker_wire::statistics::{self, Field};
use serde_json::Value;

use crate::changes::{send, sync};
use crate::harness::{Agent, scraping};
use crate::reports::report_once;
use crate::scripted::{Behaviour, ScriptedServer, load};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/observability")
}

/// Suffixes of the series of a Prometheus histogram.
const HISTOGRAM_SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// The queries of the dashboard, with its variables filled in.
fn queries() -> Vec<String> {
    let dashboard = fs::read_to_string(docs().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let query = |target: &Value| target["expr"].as_str().unwrap().to_owned();
    targets.map(|it| query(it).replace("$__rate_interval", "1m").replace("$pool", ".+")).collect()
}

/// The names of our metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = ["llm_d_epp_", "metrics_agent_", "endpoint_picker_"];
    words.filter(|word| ours.iter().any(|prefix| word.starts_with(prefix))).collect()
}

#[tokio::test]
async fn every_metric_of_alerts_dashboard_and_documentation_exists() {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("a reading", |reading| reading.waiting == Some(3)).await;
    report_once(&agent, &server).await;
    send(&agent, &sync(1, &[], None)).await;
    // Absent until the first such event, which does not happen here, without a cluster, a store, and servers
    // that publish events.
    let rare = "# TYPE metrics_agent_extract_errors counter\n# TYPE metrics_agent_refused_requests counter\n\
                # TYPE metrics_agent_kubernetes_watches gauge\n# TYPE metrics_agent_kubernetes_objects gauge\n\
                # TYPE metrics_agent_kubernetes_ignored_objects gauge\n# TYPE metrics_agent_kubernetes_lists counter\n\
                # TYPE metrics_agent_kubernetes_watch_errors counter\n\
                # TYPE metrics_agent_store_read_behind_seconds gauge\n# TYPE metrics_agent_store_write_behind_seconds gauge\n\
                # TYPE metrics_agent_store_unwritten_messages gauge\n\
                # TYPE metrics_agent_kv_event_states gauge\n# TYPE metrics_agent_kv_event_age_seconds gauge\n\
                # TYPE metrics_agent_kv_event_tokens gauge\n\
                # TYPE endpoint_picker_index_predicted_tokens counter\n# TYPE endpoint_picker_index_cached_tokens counter\n\
                # TYPE endpoint_picker_index_error_tokens histogram\n# TYPE endpoint_picker_index_wrong_responses counter\n";
    let text = agent.get("/metrics").await.text() + rare;
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    // Absent until a proxy reports such a count.
    let counts =
        statistics::shown().filter(|(_, it)| it.shared.is_none() && !matches!(it.field, Field::Derived));
    let counts = counts.map(|(row, _)| format!("endpoint_picker_{}_total", row.name));
    let known: BTreeSet<String> = described
        .flat_map(|(name, kind)| match kind {
            "counter" => vec![format!("{name}_total")],
            "histogram" => vec![name.to_owned(), format!("{name}_bucket"), format!("{name}_count")],
            "info" => vec![format!("{name}_info")],
            _ => vec![name.to_owned()],
        })
        .chain(counts)
        .collect();
    let dashboard = queries().join("\n");
    let read = |file: &str| fs::read_to_string(docs().join(file)).unwrap();
    let (alerts, tests, readme) = (read("alerts.yaml"), read("alerts-test.yaml"), read("README.md"));
    let metrics = read("../../reference/metrics.md");
    let (agents, envoys) = metrics.split_once("\n## Statistics of the filter\n").unwrap();
    // The filter's metrics, whose presence in Envoy the end-to-end tests check. The dashboard and alerts use
    // them.
    let envoys = names(envoys);
    let is_envoys = |name: &str| {
        let whole = HISTOGRAM_SUFFIXES.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        envoys.contains(whole)
    };
    for (place, text) in [
        ("dashboard.json", dashboard.as_str()),
        ("alerts.yaml", &alerts),
        ("alerts-test.yaml", &tests),
        ("README.md", &readme),
        ("metrics.md", agents),
    ] {
        let reads_envoy = place != "metrics.md";
        let is_known = |name: &str| known.contains(name) || reads_envoy && is_envoys(name);
        let unknown: Vec<_> = names(text).into_iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{place} names {unknown:?}; the metrics are {known:?}");
        assert!(!names(text).is_empty(), "{place} names no metrics");
    }
    // The rules' sources, and our side of the guide's tables; both name the filter's metrics too.
    let rules = read("epp-names.yaml");
    let sources: String = rules.lines().filter(|line| !line.contains("record:")).collect();
    let guide = read("../../install/from-the-epp.md");
    let rows = guide.lines().filter_map(|row| row.strip_prefix("| `")?.split_once(" | "));
    let here = rows.map(|(_, here)| here).collect::<Vec<_>>().join("\n");
    let recorded: BTreeSet<&str> = rules.lines().filter_map(|line| line.split("record: ").nth(1)).collect();
    for (place, text) in [("epp-names.yaml", &sources), ("from-the-epp.md", &here)] {
        let is_known = |name: &str| known.contains(name) || is_envoys(name) || recorded.contains(name);
        let unknown: Vec<_> = names(text).into_iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{place} names {unknown:?}; the metrics are {known:?}");
        assert!(names(text).len() > 5, "{place} names too few metrics");
    }
    let documented = names(agents);
    let is_part = |name: &str| HISTOGRAM_SUFFIXES.iter().any(|part| name.ends_with(part));
    let is_documented = |name: &String| is_part(name) || documented.contains(name.as_str());
    let lacking: Vec<_> = known.iter().filter(|name| !is_documented(name)).collect();
    assert!(lacking.is_empty(), "docs/reference/metrics.md lacks {lacking:?}");
}

#[test]
fn prometheus_accepts_the_queries_of_the_dashboard() {
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    let queries = queries();
    assert!(queries.len() > 10, "{queries:?}");
    for (index, query) in queries.iter().enumerate() {
        let query = serde_json::to_string(query).unwrap();
        writeln!(rules, "  - record: query_{index}\n    expr: {query}").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    fs::write(&file, rules).unwrap();
    let checked = Command::new("promtool").args(["check", "rules"]).arg(&file).output();
    let checked = checked.expect(
        "promtool is needed: run `make test`, which finds it in .tools/bin too, or install Prometheus",
    );
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
