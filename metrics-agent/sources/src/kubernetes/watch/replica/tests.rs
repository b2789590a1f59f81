//! Lists and events as API servers send them.

use serde_json::{Value as Json, json};

use super::*;
use crate::kubernetes::client::Reason;

/// Reads a number; objects without one are left out, and negative numbers are refused.
struct Numbers;

impl Decode for Numbers {
    type Value = i64;

    fn decode(&self, json: &str) -> Result<Option<i64>, String> {
        let object: Json = serde_json::from_str(json).unwrap();
        match object["number"].as_i64() {
            Some(number) if number < 0 => Err(format!("{number} is negative")),
            number => Ok(number),
        }
    }
}

fn object(name: &str, number: Option<i64>, version: u64) -> Json {
    json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string()}, "number": number})
}

fn page(items: &[Json], version: u64, next: &str) -> Vec<u8> {
    let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
    json!({"kind": "List", "metadata": metadata, "items": items}).to_string().into_bytes()
}

fn event(kind: &str, object: &Json) -> Vec<u8> {
    json!({"type": kind, "object": object}).to_string().into_bytes()
}

fn replica(max: usize) -> WatchReplica<Numbers> {
    WatchReplica::new(Numbers, max)
}

fn listed(items: &[Json]) -> WatchReplica<Numbers> {
    let mut replica = replica(10);
    replica.begin_list();
    assert_eq!(replica.read_page(&page(items, 7, "")), Ok(NextPage::Complete("7".to_owned())));
    replica
}

fn numbers(replica: &WatchReplica<Numbers>) -> Vec<i64> {
    replica.objects().iter().map(|number| **number).collect()
}

#[test]
fn a_list_replaces_the_objects_when_it_is_complete() {
    let mut replica = listed(&[object("a", Some(1), 1), object("b", Some(2), 2)]);
    let a = Arc::clone(&replica.objects()[0]);
    replica.begin_list();
    let first = page(&[object("c", Some(3), 3)], 9, "token");
    assert_eq!(replica.read_page(&first), Ok(NextPage::After("token".to_owned())));
    assert_eq!(numbers(&replica), [1, 2], "the list is not complete");
    // It breaks off, and another one begins.
    replica.begin_list();
    assert_eq!(replica.read_page(&first), Ok(NextPage::After("token".to_owned())));
    let last = page(&[object("a", Some(1), 1), object("d", None, 4)], 9, "");
    assert_eq!(replica.read_page(&last), Ok(NextPage::Complete("9".to_owned())));
    assert_eq!(numbers(&replica), [1, 3], "b is deleted, d is left out");
    assert!(Arc::ptr_eq(&a, &replica.objects()[0]), "an unchanged object stays the same");
}

#[test]
fn events_change_objects_one_by_one() {
    let mut replica = listed(&[object("a", Some(1), 1)]);
    let mut apply = |kind: &str, object: Json| {
        let applied = replica.apply(&event(kind, &object)).unwrap();
        assert_eq!(applied.version, object["metadata"]["resourceVersion"]);
        (applied.has_changed, numbers(&replica))
    };
    assert_eq!(apply("ADDED", object("b", Some(2), 11)), (true, vec![1, 2]));
    assert_eq!(apply("MODIFIED", object("b", Some(2), 12)), (false, vec![1, 2]), "only its version");
    assert_eq!(apply("MODIFIED", object("b", Some(5), 13)), (true, vec![1, 5]));
    assert_eq!(apply("MODIFIED", object("b", None, 14)), (true, vec![1]), "no longer ready, say");
    assert_eq!(apply("MODIFIED", object("b", None, 15)), (false, vec![1]));
    assert_eq!(apply("BOOKMARK", object("", None, 20)), (false, vec![1]));
    assert_eq!(apply("DELETED", object("b", Some(5), 21)), (false, vec![1]));
    assert_eq!(apply("DELETED", object("a", Some(1), 22)), (true, vec![]));
}

#[test]
fn an_error_event_ends_the_watch() {
    let mut replica = listed(&[object("a", Some(1), 1)]);
    let status = json!({"kind": "Status", "code": 410, "message": "too old resource version: 1 (7)"});
    let error = replica.apply(&event("ERROR", &status)).unwrap_err();
    assert_eq!(error.reason(), Reason::Expired);
    assert!(error.to_string().contains("too old"), "{error}");
    assert_eq!(numbers(&replica), [1], "the objects stay");
}

#[test]
fn a_malformed_answer_changes_nothing() {
    let mut replica = listed(&[object("a", Some(1), 1)]);
    let unversioned = json!({"metadata": {"name": "b"}, "number": 2});
    let unknown = event("RENAMED", &object("b", Some(2), 2));
    for text in [&b""[..], b"null", b"{}", b"\xff", &unknown, &event("ADDED", &unversioned)] {
        let error = replica.apply(text).unwrap_err();
        assert_eq!(error.reason(), Reason::Malformed, "{}", String::from_utf8_lossy(text));
    }
    replica.begin_list();
    let unversioned = br#"{"metadata":{},"items":[]}"#;
    for text in [&b""[..], b"[]", unversioned, br#"{"metadata":{"resourceVersion":"1"},"items":[1]}"#] {
        let error = replica.read_page(text).unwrap_err();
        assert_eq!(error.reason(), Reason::Malformed, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(numbers(&replica), [1]);
    let empty = br#"{"metadata":{"resourceVersion":"8"},"items":null}"#;
    assert_eq!(replica.read_page(empty), Ok(NextPage::Complete("8".to_owned())));
    assert!(replica.objects().is_empty());
}

#[test]
fn an_object_that_cannot_be_used_is_ignored_and_no_other() {
    let mut replica = listed(&[object("a", Some(-1), 1), object("b", Some(2), 2)]);
    assert_eq!((numbers(&replica), replica.ignored()), (vec![2], 1));
    assert!(replica.apply(&event("MODIFIED", &object("a", Some(1), 3))).unwrap().has_changed);
    assert_eq!((numbers(&replica), replica.ignored()), (vec![1, 2], 0));
    assert!(replica.apply(&event("MODIFIED", &object("b", Some(-2), 4))).unwrap().has_changed);
    assert_eq!((numbers(&replica), replica.ignored()), (vec![1], 1));
    assert!(!replica.apply(&event("DELETED", &object("b", Some(-2), 5))).unwrap().has_changed);
    assert_eq!(replica.ignored(), 0);
}

#[test]
fn objects_beyond_the_limit_are_ignored() {
    let mut replica = replica(2);
    replica.begin_list();
    let items = ["a", "b", "c", "d", "e", "f"].map(|name| object(name, Some(1), 1));
    replica.read_page(&page(&items, 7, "")).unwrap();
    assert_eq!((replica.objects().len(), replica.ignored()), (2, 2), "the ignored are bounded too");
    assert!(!replica.apply(&event("ADDED", &object("g", Some(1), 8))).unwrap().has_changed);
    assert!(replica.apply(&event("MODIFIED", &object("a", Some(3), 9))).unwrap().has_changed, "it stays");
    assert!(replica.apply(&event("DELETED", &object("b", Some(1), 10))).unwrap().has_changed);
    assert!(replica.apply(&event("MODIFIED", &object("c", Some(1), 11))).unwrap().has_changed);
    assert_eq!((replica.objects().len(), replica.ignored()), (2, 1));
}

#[test]
fn only_the_name_of_an_object_is_read() {
    let json = r#"{"metadata": {"name": "one", "namespace": "a", "resourceVersion": "7"}, "spec": {}}"#;
    assert_eq!(DecodeName.decode(json), Ok(Some(("a".to_owned(), "one".to_owned()))));
    assert!(DecodeName.decode("{}").is_err());
}
