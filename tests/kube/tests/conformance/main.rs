//! The conformance suite of the Gateway API Inference Extension against Envoy Gateway with the chart:
//! `make conformance`.
//!
//! The suite runs only the tests that the variable `CONFORMANCE_TESTS` lists, with `|` between them, and then
//! writes no report. See docs/design/conformance.md.

use endpoint_picker_harness::tools;
use endpoint_picker_kube::{Extension, PROXIES};
use serde_json::{Value, json};
use std::time::Duration;
use std::{env, fs};
use tokio::process::Command;
use tokio::time::timeout;

/// All tests of the suite.
const TESTS: u64 = 14;
const DEADLINE: Duration = Duration::from_secs(30 * 60);

#[tokio::test(flavor = "multi_thread")]
async fn envoy_gateway_with_the_chart_passes_the_conformance_suite() {
    let some = env::var("CONFORMANCE_TESTS").ok().filter(|tests| !tests.is_empty());
    let extension = Extension::shared().await;
    let name = json!({"name": "conformance-services"});
    let api = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": name,
        "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": name,
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name["name"]},
        "subjects": [{"kind": "ServiceAccount", "namespace": "inference", "name": "endpoint-picker"}],
    });
    for object in [role, binding] {
        extension.cluster().apply("default", &object.to_string()).await.unwrap();
    }
    extension.add_flag("--extension-conformance").await.unwrap();
    // The suite waits for a pod in the namespace of its Gateways, and Envoy Gateway's are elsewhere.
    let infra =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inference-conformance-infra"}});
    extension.cluster().apply("default", &infra.to_string()).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stands-for-a-proxy"},
        "spec": {"containers": [{"name": "server", "image": "endpoint-picker-model-server"}]},
    });
    extension.cluster().apply("inference-conformance-infra", &pod.to_string()).await.unwrap();

    let folder = tools::root().join("target/conformance");
    fs::create_dir_all(&folder).unwrap();
    let [report, log] = ["report.yaml", "suite.log"].map(|name| folder.join(name));
    let mut command = Command::new(tools::root().join(".tools/conformance/bin/conformance"));
    command.env("KUBECONFIG", extension.cluster().kubeconfig());
    command.args(["-test.v", "-test.timeout=30m", "-test.run"]);
    command.arg(
        some.as_ref().map_or("^TestConformance$".into(), |tests| format!("^TestConformance$/^({tests})$")),
    );
    command.arg(format!("--gateway-class={}", extension.class()));
    // The objects end with the cluster. The definitions of Gateway API are those of Envoy Gateway.
    command.args(["--cleanup-base-resources=false", "--allow-crds-mismatch"]);
    if some.is_none() {
        command.args([
            "--conformance-profiles=Gateway",
            "--organization=endpoint-picker",
            "--project=endpoint-picker",
        ]);
        command.args([concat!("--url=", env!("CARGO_PKG_REPOSITORY")), "--contact=none: not submitted"]);
        command.arg(concat!("--version=", env!("CARGO_PKG_VERSION")));
        command.arg(format!("--report-output={}", report.display()));
        let _ = fs::remove_file(&report);
    }
    let output = fs::File::create(&log).unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(output).kill_on_drop(true);
    let status = timeout(DEADLINE, command.status()).await.unwrap().unwrap();

    let text = fs::read_to_string(&log).unwrap();
    let results: Vec<_> = text.lines().map(str::trim).filter(|line| line.starts_with("--- ")).collect();
    println!("{}", results.join("\n"));
    let proxies = extension.cluster().kubectl(["get", "pods", "--namespace", PROXIES]).await;
    let passed = |name: &str| {
        results.iter().any(|line| line.starts_with(&format!("--- PASS: TestConformance/{name} ")))
    };
    let context = format!("the suite's log is {}; proxies: {proxies:?}", log.display());
    if let Some(tests) = some {
        assert!(status.success(), "{context}");
        for name in tests.split('|') {
            assert!(passed(name), "{name} was not run: {results:?}");
        }
    } else {
        let report: Value = serde_saphyr::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
        let core = &report["profiles"][0]["core"];
        let counts = ["Passed", "Failed", "Skipped"].map(|result| core["statistics"][result].as_u64());
        assert_eq!(counts, [Some(TESTS), Some(0), Some(0)], "{report}; {context}");
    }
}
