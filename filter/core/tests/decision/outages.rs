//! Decisions without readings, without a snapshot, and around endpoints that failed.

use core::time::Duration;
use endpoint_picker::decision::explanation::Verdict;
use endpoint_picker::decision::{Abstention, FailureMode, Outcome};
use endpoint_picker::input::Exclusion;
use endpoint_picker::period::Period;
use endpoint_picker::request::Request;
use endpoint_picker::request::subset::Subset;
use endpoint_picker::rng::SplitMix64;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, subset};

#[test]
fn readings_older_than_ten_seconds_are_not_used_and_prefixes_are() {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9)]);
    let prompt = "a prompt that one endpoint knows ".repeat(20);
    fixture.readings[0].ready = false;
    assert_eq!(fixture.send(&prompt), [1]);
    fixture.readings[0].ready = true;
    fixture.now = NOW + Duration::from_secs(10);
    assert_eq!(fixture.send("fresh enough"), [0]);
    fixture.now = NOW + Duration::from_millis(10_001);
    assert_eq!(fixture.send(&prompt), [1], "only the prefix counts");
    let mut seen = [false; 2];
    for n in 0..64 {
        seen[fixture.send(&format!("new {n}"))[0]] = true;
    }
    assert_eq!(seen, [true, true], "otherwise all are equal");
}

#[test]
fn a_decision_without_readings_is_marked_as_stale() {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9)]);
    let request = Request { model: "m", ..Request::default() };
    for (age, is_stale) in [(Duration::from_secs(10), false), (Duration::from_millis(10_001), true)] {
        fixture.now = NOW + age;
        let decision = fixture.decide(&request);
        let text = fixture.pipeline.explain(&decision, &request, &fixture.input(), NOW).to_string();
        assert_eq!(
            (decision.is_stale, text.starts_with("readings are stale; ")),
            (is_stale, is_stale),
            "{text}"
        );
    }
}

#[test]
fn an_endpoint_that_failed_a_moment_ago_is_picked_only_when_nothing_else_is_left() {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9), (50, 0.9)]);
    let avoided = Period::new(NOW, Duration::from_millis(250));
    fixture.avoided = vec![avoided];
    for _ in 0..32 {
        assert_ne!(fixture.send("a prompt"), [0]);
    }
    let explanation = {
        let request = Request::default();
        let decision = fixture.decide(&request);
        fixture.pipeline.explain(&decision, &request, &fixture.input(), NOW)
    };
    assert_eq!(explanation.endpoints[0].verdict, Verdict::Excluded(Exclusion::Avoided));
    let only = fixture.decide(&subset(&["192.168.1.1:8000"]));
    assert_eq!(only.outcome, Outcome::Route(vec![0]), "nothing else is left");
    fixture.avoided = vec![avoided; 3];
    assert_eq!(fixture.send("another prompt"), [0], "all are avoided: the best of them");
    fixture.avoided = vec![avoided];
    fixture.now = NOW + Duration::from_millis(250);
    assert_eq!(fixture.send("a third prompt"), [0], "its time is over");
}

#[test]
fn without_a_snapshot_the_failure_mode_decides() {
    let outcome = |mode: FailureMode, subset| mode.without_snapshot(&subset, &mut SplitMix64::new(1));
    let abstained = |within| Outcome::Abstain { reason: Abstention::NoSnapshot, within };
    let hint = Subset::from_items(["192.168.1.1:8000", "no address"]);
    assert_eq!(outcome(FailureMode::FailOpen, Subset::All), abstained(None));
    let named = Some(vec!["192.168.1.1:8000".parse().unwrap()]);
    assert_eq!(outcome(FailureMode::FailOpen, hint.clone()), abstained(named), "a hint is obeyed");
    let refused = [
        (FailureMode::FailOpen, Subset::from_items(["no address"])),
        (FailureMode::FailClose, Subset::All),
        (FailureMode::FailClose, hint),
    ];
    for (mode, subset) in refused {
        assert!(matches!(outcome(mode, subset), Outcome::Reject(r) if r.code.status() == 503), "{mode:?}");
    }
}
