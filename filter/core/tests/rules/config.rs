//! Refusals of a configuration, and additions to one.

use endpoint_picker::config::ConfigErrors;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, assert_near, compile, pod, totals};

#[track_caller]
fn assert_refused(config: &Value, at: &str, words: &[&str]) {
    let ConfigErrors(errors) = compile(config).expect_err("refused");
    let [error] = &errors[..] else { panic!("not one error: {errors:?}") };
    assert_eq!(error.at, at, "{error}");
    assert!(words.iter().all(|word| error.problem.contains(word)), "{error}");
}

fn with_profiles(profiles: &Value) -> Value {
    json!({
        "plugins": [{"type": "queue-scorer"}, {"type": "max-score-picker"}, {"type": "random-picker"}],
        "schedulingProfiles": profiles,
    })
}

#[test]
fn plugin_names_are_unique() {
    let twice = json!({"plugins": [{"type": "queue-scorer"}, {"type": "queue-scorer"}]});
    assert_refused(&twice, "plugins[1].name", &["queue-scorer", "unique"]);
    let named = json!({"plugins": [{"type": "queue-scorer"}, {"name": "second", "type": "queue-scorer"}]});
    assert!(compile(&named).is_ok());
}

#[test]
fn a_profile_has_a_name_of_its_own() {
    assert_refused(
        &with_profiles(&json!([{"name": "", "plugins": []}])),
        "schedulingProfiles[0].name",
        &["name"],
    );
    let mut twice = with_profiles(&json!([{"name": "a", "plugins": []}, {"name": "a", "plugins": []}]));
    twice["plugins"][0] = json!({"type": "header-profile-handler"});
    assert_refused(&twice, "schedulingProfiles[1].name", &["\"a\"", "unique"]);
}

#[test]
fn a_profile_refers_to_declared_plugins() {
    let unknown = with_profiles(&json!([{"name": "a", "plugins": [{"pluginRef": "kv"}]}]));
    let at = "schedulingProfiles[0].plugins[0].pluginRef";
    assert_refused(&unknown, at, &["\"kv\"", "queue-scorer", "random-picker"]);
}

#[test]
fn a_profile_has_at_most_one_picker() {
    let refs = json!([{"pluginRef": "max-score-picker"}, {"pluginRef": "random-picker"}]);
    let two = with_profiles(&json!([{"name": "a", "plugins": refs}]));
    assert_refused(&two, "schedulingProfiles[0].plugins[1]", &["picker"]);
}

#[test]
fn there_is_one_profile_handler() {
    let two = json!({"plugins": [{"type": "single-profile-handler"}, {"type": "header-profile-handler"}]});
    assert_refused(&two, "plugins[1]", &["multiple profile handlers found"]);
    let profiles = json!([{"name": "a", "plugins": []}, {"name": "b", "plugins": []}]);
    assert_refused(&with_profiles(&profiles), "plugins", &["profile handler"]);
    let mut single = with_profiles(&profiles);
    single["plugins"][0] = json!({"type": "single-profile-handler"});
    assert_refused(&single, "schedulingProfiles", &["single-profile-handler", "a, b"]);
}

#[test]
fn the_saturation_detector_has_to_be_one() {
    let config = |name: &str| json!({"plugins": [{"type": "queue-scorer"}], "saturationDetector": name});
    let at = "flowControl.saturationDetector.pluginRef";
    assert_refused(&config("nobody"), at, &["nobody"]);
    assert_refused(&config("queue-scorer"), at, &["queue-scorer", "not a saturation detector"]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let config = json!({
        "plugins": [
            {"type": "queue-scorer"}, {"type": "queue-scorer"}, {"type": "prefix-cache-scorer", "parameters": {"matchLengthWeight": 2}},
        ],
        "schedulingProfiles": [
            {"name": "a", "plugins": [{"pluginRef": "nobody"}, {"pluginRef": "somebody"}]}, {"name": "a", "plugins": []},
        ],
        "saturationDetector": "queue-scorer",
    });
    let ConfigErrors(errors) = compile(&config).unwrap_err();
    let places: Vec<&str> = errors.iter().map(|error| error.at.as_str()).collect();
    let expected = [
        "plugins[1].name",
        "plugins[2].parameters",
        "plugins",
        "schedulingProfiles[0].plugins[0].pluginRef",
        "schedulingProfiles[0].plugins[1].pluginRef",
        "schedulingProfiles[1].name",
        "flowControl.saturationDetector.pluginRef",
    ];
    assert_eq!(places, expected, "{errors:?}");
}

#[test]
fn every_wrong_reference_is_named_and_a_circle_as_one() {
    let session = |name: &str, kind: &str, producers: &[&str]| {
        let source = |producer: &&str| json!({"attribute": "SessionIDDataKey", "producer": producer});
        let sources: Vec<Value> = producers.iter().map(source).collect();
        let parameters = json!({"strategy": "session_id", "sessionIdConfig": {"sources": sources}});
        json!({"name": name, "type": kind, "parameters": parameters})
    };
    let config = json!({"plugins": [
        session("a", "session-affinity-scorer", &["b", "nobody", "queue-scorer"]),
        session("b", "session-affinity-filter", &["c"]),
        session("c", "session-affinity-filter", &["a"]),
        session("d", "session-affinity-filter", &["d"]),
        session("e", "session-affinity-filter", &["a"]),
        {"type": "queue-scorer"},
    ]});
    let problems = compile(&config).unwrap_err().0;
    let problems: Vec<&str> = problems.iter().map(|error| error.problem.as_str()).collect();
    let circle = |way: &str| format!("plugins refer to each other in a circle: {way}");
    let expected = [
        &circle("a → b → c → a"),
        "no plugin is named \"nobody\"; declared are a, b, c, d, e, queue-scorer",
        "\"queue-scorer\" is a queue-scorer, not a session producer",
        &circle("b → c → a → b"),
        &circle("c → a → b → c"),
        &circle("d → d"),
        "\"a\" is a session-affinity-scorer, not a session producer",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_prefix_producer_that_is_named_has_to_be_one() {
    let config = |name: &str| json!({"plugins": [{"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": name}}]});
    let at = "plugins[0].parameters.prefixMatchInfoProducerName";
    assert_refused(&config("mine"), at, &["\"mine\""]);
    assert_refused(&config("prefix-cache-scorer"), at, &["prefix-cache-scorer"]);
}

#[test]
fn a_latency_predictor_that_is_named_has_to_be_one_and_the_default_one_is_added() {
    let config = |kind: &str, name: &str| {
        let parameters = json!({"latencyPredictionInfoProducerName": name});
        json!({"plugins": [{"type": kind, "parameters": parameters}, {"type": "queue-scorer"}]})
    };
    for kind in ["latency-scorer", "slo-headroom-tier-filter", "latency-slo-admitter"] {
        let at = "plugins[0].parameters.latencyPredictionInfoProducerName";
        assert_refused(&config(kind, "mine"), at, &["\"mine\""]);
        assert_refused(&config(kind, "queue-scorer"), at, &["not a latency predictor"]);
        let added = names(&config(kind, ""));
        for name in ["predicted-latency-producer", "approx-prefix-cache-producer"] {
            assert!(added.iter().any(|added| added == name), "{kind}: {added:?}");
        }
    }
    let by_tokens = names(&json!({"plugins": [{"type": "prefix-cache-affinity-filter"}]}));
    assert!(!by_tokens.contains(&"predicted-latency-producer".to_owned()), "{by_tokens:?}");
}

#[test]
fn parameters_out_of_range_are_refused_where_they_stand() {
    let cases = [
        ("prefix-cache-scorer", json!({"matchLengthWeight": 2}), "matchLengthWeight"),
        ("utilization-detector", json!({"queueDepthThreshold": 0}), "queueDepthThreshold"),
        ("concurrency-detector", json!({"headroom": -1}), "headroom"),
        ("label-selector-filter", json!({"matchLabels": {"": "x"}}), "matchLabels"),
        ("utilization-filter", json!({}), "conditions"),
        ("prefix-cache-affinity-filter", json!({"affinityThreshold": 2}), "affinityThreshold"),
        ("slo-headroom-tier-filter", json!({"epsilonExploreNeg": 2}), "epsilonExploreNeg"),
        ("predicted-latency-producer", json!({"sloBufferFactor": 0}), "sloBufferFactor"),
        ("context-length-aware", json!({"label": ""}), "label"),
        ("header-label-affinity-scorer", json!({"headerName": "a"}), "labelKey"),
        ("endpoint-attribute-scorer", json!({"attributeKey": ""}), "attributeKey"),
        ("probabilistic-admitter", json!({"k": 0}), "k is 0"),
        ("prefix-based-pd-decider", json!({"promptTokens": -1}), "promptTokens"),
        ("inflight-load-producer", json!({"outputRatio": -1}), "outputRatio"),
        ("session-id-producer", json!({}), "headerName"),
        ("token-producer", json!({"vllm": {}}), "modelName"),
    ];
    for (kind, parameters, word) in cases {
        let config = json!({"plugins": [{"type": "queue-scorer"}, {"type": kind, "parameters": parameters}]});
        assert_refused(&config, "plugins[1].parameters", &[word]);
    }
}

fn names(config: &Value) -> Vec<String> {
    compile(config).unwrap().plugins().iter().map(|instance| instance.name.clone()).collect()
}

#[test]
fn what_a_configuration_leaves_out_is_added() {
    let added = names(&json!({"plugins": [{"type": "prefix-cache-scorer"}]}));
    for name in
        ["single-profile-handler", "max-score-picker", "utilization-detector", "approx-prefix-cache-producer"]
    {
        assert!(added.iter().any(|added| added == name), "{name} is not in {added:?}");
    }
    let without_prefixes = names(&json!({"plugins": [{"type": "queue-scorer"}]}));
    assert!(!without_prefixes.iter().any(|name| name == "approx-prefix-cache-producer"));
    let disaggregated = names(&json!({
        "plugins": [{"type": "disagg-profile-handler"}],
        "schedulingProfiles": [{"name": "decode", "plugins": []}],
    }));
    assert!(disaggregated.iter().any(|name| name == "approx-prefix-cache-producer"), "for its deciders");
}

#[test]
fn without_profiles_every_filter_scorer_and_picker_takes_part_at_weight_one() {
    let config = json!({"plugins": [{"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"}]});
    let decision = Fixture::new(&config, vec![pod(3, 0.2, &[]), pod(0, 0.1, &[])]).send("x", &[]);
    assert_near(&totals(&decision), &[0.8, 1.9]);
}

#[test]
fn a_weight_that_is_missing_is_one_and_any_finite_number_will_do() {
    let profile = |weight: &Value| {
        let refs = json!([{"pluginRef": "queue-scorer", "weight": weight}]);
        with_profiles(&json!([{"name": "a", "plugins": refs}]))
    };
    for (weight, expected) in [(json!(null), 1.0), (json!(0), 0.0), (json!(-2.5), -2.5), (json!(1e6), 1e6)] {
        let decision = Fixture::new(&profile(&weight), vec![pod(0, 0.0, &[])]).send("x", &[]);
        assert_near(&totals(&decision), &[expected]);
    }
}

#[test]
fn the_default_is_queue_two_kv_two_prefix_three() {
    let decision = Fixture::new(&json!({}), vec![pod(3, 0.2, &[]), pod(0, 0.1, &[])]).send("x", &[]);
    assert_near(&totals(&decision), &[1.6, 3.8]);
}
