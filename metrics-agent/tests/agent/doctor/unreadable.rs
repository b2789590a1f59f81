//! Dumps that are not what Envoy sends.

use metrics_agent_doctor::doctor::Severity::Warning;
use metrics_agent_doctor::doctor::{ClusterHosts, ConfigDump, Facts, Statistics, diagnose};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::Recorded;

#[test]
fn a_resource_that_cannot_be_read_does_not_hide_the_others() {
    let mut envoy = Recorded::wasm();
    let broken = json!({"listener": {"name": "broken", "filter_chains": 7}, "name": "broken"});
    envoy.section("static_listeners")["static_listeners"].as_array_mut().unwrap().push(broken);
    envoy.assert_finds(Warning, "listener broken: invalid type", "/config_dump", "");
}

#[test]
fn unknown_fields_are_ignored() {
    let mut envoy = Recorded::native();
    envoy.listener()["new_field"] = json!({"a": [1]});
    envoy.manager()["new_field"] = 1.into();
    envoy.routes()[0]["route"]["new_field"] = Value::Null;
    envoy.cluster("model-servers")["new_field"] = json!([]);
    envoy.set_picker("newField", true.into());
    envoy.dump["configs"].as_array_mut().unwrap().push(json!({"@type": "type.googleapis.com/new"}));
    envoy.assert_is_ok();
}

#[test]
fn text_that_is_not_a_dump_is_an_error() {
    for text in ["", "null", "[]", "{}", "{\"configs\": 1}", "<html>", &"[".repeat(100_000)] {
        assert!(ConfigDump::parse(text.as_bytes()).is_err(), "{text:.20}");
    }
    assert!(ClusterHosts::parse(b"<html>").is_err());
    Statistics::parse(": \n: 1\nx: y\nx: 18446744073709551616\n\u{0}");
}

#[test]
fn escape_sequences_do_not_reach_the_terminal() {
    let mut envoy = Recorded::wasm();
    envoy.routes()[0]["route"]["cluster"] = "\u{1b}[2J".into();
    let text = envoy.diagnose().to_string();
    assert!(text.contains("Envoy has no cluster") && !text.contains('\u{1b}'), "{text}");
}

/// All places in a document.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| places(item, &format!("{at}/{index}"), all));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            places(field, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), all);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!(["", {}])),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn any_value_at_any_place_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..4),
        is_wasm: bool,
    ) {
        let mut envoy = if is_wasm { Recorded::wasm() } else { Recorded::native() };
        for (index, value) in changes {
            let mut all = Vec::new();
            places(&envoy.dump, "", &mut all);
            *envoy.dump.pointer_mut(&all[index.index(all.len())]).unwrap() = value;
        }
        if let Ok(dump) = ConfigDump::parse(envoy.dump.to_string().as_bytes()) {
            let report = diagnose(&Facts::new(dump, ClusterHosts::default()));
            // Without an agent there is always a finding.
            prop_assert!(!report.is_ok() && !report.to_string().is_empty());
        }
    }
}
