//! Rules of the EPP's v0.11 that v0.10 lacks, by the facts of their pull requests: no binary of v0.11 was
//! run.

use core::time::Duration;

use endpoint_picker::decision::explanation::Verdict;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, destinations, fresh, pod};

/// Where the second of two equal requests goes, when the first server has the first one in its cache and
/// these many requests waiting.
fn of_cached(rules: EppRules, config: &Value, waiting: u64) -> usize {
    let prompt = "0123456789abcdef".repeat(64);
    let mut fixture = Fixture::by(rules, config, vec![pod(0, 0.0, &[]), pod(9, 0.9, &[])]);
    assert_eq!(destinations(&fixture.send(&prompt, &[])), [0]);
    fixture.readings = vec![pod(waiting, 0.0, &[]), pod(0, 0.0, &[])];
    destinations(&fixture.send(&prompt, &[]))[0]
}

/// Example of `Versions of the EPP`: #1741.
#[test]
fn a_saturated_server_is_passed_over_even_if_it_has_the_prompt() {
    let config = json!({});
    assert_eq!(of_cached(EppRules::Own, &config, 6), 0, "2 · 0 + 3 · 1 is more than 2 · 1");
    assert_eq!(of_cached(EppRules::V010, &config, 6), 0);
    assert_eq!(of_cached(EppRules::Ebab68792, &config, 6), 0);
    assert_eq!(of_cached(EppRules::V011, &config, 6), 1);
    assert_eq!(of_cached(EppRules::V011, &config, 4), 0, "below the threshold");
}

#[test]
fn the_detector_filters_last_in_every_profile_that_does_not_name_it() {
    let by_name =
        |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({"pluginRef": name})).collect() };
    let config = |detector: &str| {
        json!({
            "plugins": [{"type": "prefill-filter"}, {"type": "decode-filter"}, {"type": "queue-scorer"}, {"type": detector, "name": "d"},
                {"type": "always-disagg-pd-decider"},
                {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "always-disagg-pd-decider"}}}],
            "schedulingProfiles": [{"name": "prefill", "plugins": by_name(&["prefill-filter", "queue-scorer"])},
                {"name": "decode", "plugins": by_name(&["d", "decode-filter", "queue-scorer"])}],
            "saturationDetector": "d",
        })
    };
    let filters = |rules, config: &Value| {
        let pipeline = Fixture::by(rules, config, vec![fresh()]).pipeline;
        let filters = pipeline.filters_by_saturation();
        filters.map(|(name, profiles)| format!("{name} in {}", profiles.join(", ")))
    };
    for detector in ["utilization-detector", "concurrency-detector"] {
        assert_eq!(filters(EppRules::V010, &config(detector)), None);
        let v011 = filters(EppRules::V011, &config(detector));
        assert_eq!(v011.as_deref(), Some("d in prefill"), "decode has it as its first");
    }
    // It is not a filter, so that its children have to be in the profiles.
    let combined = json!({
        "plugins": [{"type": "queue-scorer"}, {"type": "utilization-detector"},
            {"type": "max-saturation-detector", "name": "d", "parameters": {"detectors": ["utilization-detector"]}}],
        "schedulingProfiles": [{"name": "default", "plugins": by_name(&["queue-scorer"])}],
        "saturationDetector": "d",
    });
    assert_eq!(filters(EppRules::V011, &combined), None);
    let of_own = json!({"plugins": [{"type": "expected-latency-scorer"}]});
    assert_eq!(filters(EppRules::V011, &of_own), None, "our own rules are unaffected");
}

#[test]
fn saturated_servers_are_all_kept_where_no_other_is_left() {
    let mut fixture = Fixture::by(EppRules::V011, &json!({}), vec![pod(5, 0.1, &[]), pod(9, 0.9, &[])]);
    assert_eq!(destinations(&fixture.decide(&Request::default(), 1)), [0]);
    let detector = json!({"type": "concurrency-detector", "parameters": {"maxConcurrency": 4}});
    let config = json!({
        "plugins": [{"type": "active-request-scorer"}, detector],
        "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "active-request-scorer"}]}],
        "saturationDetector": "concurrency-detector",
    });
    let mut fixture = Fixture::by(EppRules::V011, &config, vec![fresh(), fresh()]);
    fixture.in_flight = [9, 5].map(|requests| Load { requests, tokens: 0 }).to_vec();
    assert_eq!(destinations(&fixture.decide(&Request::default(), 1)), [1]);
}

/// A reading of this age in milliseconds, and requests waiting.
fn aged(milliseconds: u64, waiting: u64) -> Reading {
    let updated = NOW.saturating_sub(Duration::from_millis(milliseconds));
    Reading { updated: Some(updated), ..pod(waiting, 0.0, &[]) }
}

#[test]
fn readings_stay_fresh_for_four_scrapes_at_least() {
    // The busier server is fresh by any threshold; the idle one has a reading of this age.
    let picked = |interval: u64, age: u64| {
        let config = json!({"scrapeIntervalMs": interval});
        let mut fixture = Fixture::by(EppRules::V011, &config, vec![aged(0, 3), aged(age, 0)]);
        destinations(&fixture.decide(&Request::default(), 1))[0]
    };
    assert_eq!([picked(50, 200), picked(50, 201)], [1, 0], "the EPP's 200 ms at its 50 ms");
    assert_eq!([picked(1_000, 1_500), picked(1_000, 4_000), picked(1_000, 4_001)], [1, 1, 0]);
}

#[test]
fn an_explanation_names_the_detector_that_dropped_an_endpoint() {
    let mut fixture = Fixture::by(EppRules::V011, &json!({}), vec![pod(5, 0.1, &[]), fresh()]);
    let request = Request::default();
    let decision = fixture.decide(&request, 1);
    let pool = fixture.pool();
    let explanation = fixture.pipeline.explain(&decision, &request, &fixture.input(&pool), NOW);
    let dropped = explanation.endpoints.first().map(|endpoint| endpoint.verdict.clone());
    assert_eq!(dropped, Some(Verdict::Dropped("utilization-detector".to_owned())));
}
