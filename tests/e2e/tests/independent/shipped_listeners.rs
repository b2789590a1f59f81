//! Properties that every listener of the shipped configurations has.

use endpoint_picker_harness::shipped::snippets;
use endpoint_picker_harness::tools;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Headers by which a client would choose its server, or its model past the rules for models.
const REMOVED: [&str; 3] =
    ["x-gateway-destination-endpoint", "x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];

/// The HTTP connection managers of all shipped files, each with its file.
fn listeners() -> Vec<(String, Value)> {
    let mut listeners = Vec::new();
    for file in snippets::of_files().unwrap() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&file.text).unwrap();
        for manager in documents.iter().flat_map(connection_managers) {
            listeners.push((file.at.clone(), manager.clone()));
        }
    }
    assert!(listeners.len() >= 2, "{} listeners", listeners.len());
    listeners
}

/// Everything in a document that is an HTTP connection manager.
fn connection_managers(document: &Value) -> Vec<&Value> {
    let is_one = document["@type"].as_str().is_some_and(|kind| kind.ends_with(".HttpConnectionManager"));
    let inner: Vec<&Value> = match document {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    };
    let own = is_one.then_some(document);
    own.into_iter().chain(inner.into_iter().flat_map(connection_managers)).collect()
}

/// The strings that a path of keys leads to, through all items of arrays on the way.
fn strings_at<'a>(value: &'a Value, path: &[&str]) -> BTreeSet<&'a str> {
    match (value, path) {
        (Value::Array(items), _) => items.iter().flat_map(|item| strings_at(item, path)).collect(),
        (Value::String(text), []) => BTreeSet::from([text.as_str()]),
        (_, [key, rest @ ..]) => value.get(key).map_or_else(BTreeSet::new, |inner| strings_at(inner, rest)),
        _ => BTreeSet::new(),
    }
}

#[test]
fn every_shipped_listener_normalizes_paths() {
    for (file, manager) in listeners() {
        assert_eq!(manager["normalize_path"], true, "{file}");
        assert_eq!(manager["merge_slashes"], true, "{file}");
        assert_eq!(manager["path_with_escaped_slashes_action"], "UNESCAPE_AND_FORWARD", "{file}");
    }
}

#[test]
fn every_shipped_listener_removes_from_clients_what_it_copies_into_metadata() {
    for (file, manager) in listeners() {
        let copied = strings_at(&manager["http_filters"], &["typed_config", "request_rules", "header"]);
        let early = &manager["early_header_mutation_extensions"];
        let removed = strings_at(early, &["typed_config", "mutations", "remove"]);
        assert!(copied.is_subset(&removed), "{file} copies {copied:?} and removes {removed:?}");
        for header in REMOVED {
            assert!(removed.contains(header), "{file} lets clients set {header}");
        }
        let filters = strings_at(&manager["http_filters"], &["typed_config", "@type"]);
        if !filters.iter().any(|kind| kind.ends_with(".wasm.v3.Wasm")) {
            assert!(copied.is_empty(), "{file}: the module writes the metadata itself, not {copied:?}");
            continue;
        }
        for header in ["x-gateway-destination-endpoint", "x-endpoint-picker-fallback"] {
            assert!(copied.contains(header), "{file} does not take {header} from the picker");
        }
    }
}

#[test]
fn the_gateways_remove_the_same_headers() {
    for form in ["wasm", "native"] {
        let documents = |gateway: &str| -> Vec<Value> {
            let file = tools::root().join(format!("deploy/rendered/{gateway}-{form}.yaml"));
            serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap()
        };
        let of_istio = documents("istio");
        let removed_by_istio: BTreeSet<&str> = of_istio
            .iter()
            .flat_map(connection_managers)
            .flat_map(|manager| {
                let early = &manager["early_header_mutation_extensions"];
                strings_at(early, &["typed_config", "mutations", "remove"])
            })
            .collect();
        assert_eq!(removed_by_istio, BTreeSet::from(REMOVED), "Istio, {form}");
        let of_envoy_gateway = documents("envoy-gateway");
        let removed_by_envoy_gateway: BTreeSet<&str> = of_envoy_gateway
            .iter()
            .flat_map(|policy| strings_at(policy, &["spec", "headers", "earlyRequestHeaders", "remove"]))
            .collect();
        assert_eq!(removed_by_envoy_gateway, BTreeSet::from(REMOVED), "Envoy Gateway, {form}");
    }
}

#[test]
fn the_security_page_lists_each_header_that_a_shipped_listener_removes() {
    let page = include_str!("../../../../docs/operate/security.md");
    let (_, section) = page.split_once("\n## Headers of clients\n").unwrap();
    let section = section.split("\n#").next().unwrap();
    for (file, manager) in listeners() {
        let early = &manager["early_header_mutation_extensions"];
        for header in strings_at(early, &["typed_config", "mutations", "remove"]) {
            assert!(section.contains(&format!("`{header}`")), "{file} removes {header}");
        }
    }
}
