//! What every listener of the shipped configurations has in common.

use endpoint_picker_harness::shipped::snippets;
use serde_json::Value;
use std::collections::BTreeSet;

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
        assert!(removed.contains("x-gateway-destination-endpoint"), "{file}");
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
