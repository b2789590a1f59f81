//! The functions between the built filter and Envoy, and the capabilities of the shipped configurations.

use anyhow::Context;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{self, Config};
use endpoint_picker_harness::shipped::Module;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const LIST: &str = "filter/wasm/capabilities.txt";

/// Envoy calls these regardless of the capabilities.
const NO_CAPABILITIES: [&str; 3] = ["_initialize", "proxy_abi_version_0_2_1", "proxy_on_memory_allocate"];

/// The functions of the list, and whether each is allowed.
fn list() -> BTreeMap<String, bool> {
    let text = fs::read_to_string(tools::root().join(LIST)).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries: Vec<_> = lines
        .map(|line| match line.split_once(' ') {
            Some(("allow", name)) => (name.trim().to_owned(), true),
            Some(("deny", name)) => (name.trim().to_owned(), false),
            _ => panic!("{LIST}: {line:?} is not an entry; must be `allow <function>` or `deny <function>`"),
        })
        .collect();
    let count = entries.len();
    let list: BTreeMap<_, _> = entries.into_iter().collect();
    assert_eq!(list.len(), count, "{LIST} names a function twice");
    list
}

/// Panics with the names that only one of the two has.
fn assert_same(one: (&str, &BTreeSet<String>), other: (&str, &BTreeSet<String>), advice: &str) {
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>| {
        these.difference(those).cloned().collect::<Vec<_>>().join(", ")
    };
    assert!(
        one.1 == other.1,
        "\nonly in {}: {}\nonly in {}: {}\n{advice}",
        one.0,
        only(one.1, other.1),
        other.0,
        only(other.1, one.1)
    );
}

#[test]
fn the_module_imports_and_exports_the_functions_of_the_list() {
    let module = Module::read().unwrap();
    let offered = module.exports.into_iter().filter(|name| !NO_CAPABILITIES.contains(&name.as_str()));
    let found: BTreeSet<_> = offered.chain(module.imports).collect();
    let listed = list().into_keys().collect();
    let advice = format!(
        "If that is meant, change {LIST}: `allow` what the filter needs, and put it into envoy.yaml too; `deny` what is only \
         linked. An unintended function often comes from the standard library: a HashMap's seed, the clock."
    );
    assert_same(("the module", &found), (LIST, &listed), &advice);
}

#[test]
fn every_shipped_configuration_allows_what_the_list_allows() {
    let listed = list().into_iter().filter_map(|(name, allowed)| allowed.then_some(name)).collect();
    let examples = config::examples().unwrap().into_iter().map(|name| format!("examples/{name}"));
    for path in ["envoy.yaml".to_owned()].into_iter().chain(examples) {
        let mut config = Config::converted(&path, Filter::Wasm).unwrap();
        let mut pickers = 0;
        for picker in pickers_of(config.document()) {
            let allowed = picker
                .pointer("/typed_config/config/capability_restriction_config/allowed_capabilities")
                .and_then(Value::as_object)
                .unwrap_or_else(|| panic!("{path} does not restrict the module"));
            let allowed = allowed.keys().cloned().collect();
            assert_same((&path, &allowed), (LIST, &listed), "The list decides.");
            pickers += 1;
        }
        assert!(pickers > 0, "{path} has no picker");
    }
}

/// The HTTP filters of an Envoy configuration that run a module.
fn pickers_of(config: &Value) -> impl Iterator<Item = &Value> {
    let filters = config
        .pointer("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters")
        .and_then(Value::as_array);
    let runs_module = |filter: &&Value| filter.pointer("/typed_config/config/vm_config").is_some();
    filters.into_iter().flatten().filter(runs_module)
}

/// Envoy 1.40 has a new place for them and warns of the other one, which older Envoys need.
#[tokio::test(flavor = "multi_thread")]
async fn the_picker_works_with_the_capabilities_at_their_new_place() {
    let moved = |config: &mut Config| {
        let settings = &mut config.picker()?["typed_config"]["config"];
        let fields = settings.as_object_mut().context("settings")?;
        let restriction = fields.remove("capability_restriction_config").context("a restriction")?;
        settings["vm_config"]["capability_restriction_config"] = restriction;
        Ok(())
    };
    // It starts when every worker picks.
    let stack = Stack::builder().filter(Filter::Wasm).change(moved).start().await;
    let log = stack.envoy().log().unwrap();
    assert!(!log.contains("Deprecated field"), "{log}");
}
