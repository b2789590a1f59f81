//! The commands of docs/install, and what runs them.

use crate::tools;
use std::fs;

/// The blocks of commands of each page, in their order: the test that runs them, which names the page.
/// `tests/e2e/tests/independent/shipped_config.rs` checks configurations, and `tools/deploy/chart.py` the
/// chart's values.
const RUN_BY: &[(&str, &[&str])] = &[
    ("README.md", &["tools/test/install", "tools/test/install"]),
    (
        "envoy-gateway.md",
        &[
            // With the same charts and values; definitions and Envoy Gateway come from Go modules.
            "tests/kube/src/extension.rs",
            "tests/kube/tests/extension/fallback.rs",
            "tests/kube/tests/envoy_gateway/page.rs",
        ],
    ),
    ("envoy.md", &["tools/test/host"]),
    ("from-the-epp.md", &[]),
    ("host.md", &["tools/test/host", "tools/test/host", "tools/test/compose.py"]),
    ("istio.md", &["tests/kube/tests/istio/main.rs"]),
    ("kserve.md", &["tests/kube/tests/extension/kserve.rs"]),
    ("wasm-or-native.md", &[]),
];

#[test]
fn each_block_of_commands_of_an_install_page_is_run_by_a_test_that_names_the_page() {
    let folder = tools::root().join("docs/install");
    let mut pages: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort_unstable();
    assert_eq!(pages, RUN_BY.iter().map(|(page, _)| *page).collect::<Vec<_>>());
    for (page, tests) in RUN_BY {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        let blocks = text.lines().filter(|line| *line == "```sh").count();
        assert_eq!(blocks, tests.len(), "{page} has {blocks} blocks of commands");
        for test in *tests {
            let text = fs::read_to_string(tools::root().join(test)).unwrap();
            assert!(text.contains(&format!("docs/install/{page}")), "{test} does not name {page}");
        }
    }
}
