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
    assert_eq!(only.outcome, Outcome::Route(vec![0].into()), "nothing else is left");
    fixture.avoided = vec![avoided; 3];
    assert_eq!(fixture.send("another prompt"), [0], "all are avoided: the best of them");
    fixture.avoided = vec![avoided];
    fixture.now = NOW + Duration::from_millis(250);
    assert_eq!(fixture.send("a third prompt"), [0], "its time is over");
}

#[test]
fn endpoints_that_failed_a_request_come_last_in_its_next_decision() {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9), (0, 0.0), (70, 0.9)]);
    let failed = ["192.168.1.1:8000".parse().unwrap(), "192.168.1.3:8000".parse().unwrap()];
    let picked = |fixture: &mut Fixture, request: &Request<'_>| match fixture.decide(request).outcome {
        Outcome::Route(picked) => picked[0],
        outcome => panic!("{outcome:?}"),
    };
    let request = Request { model: "m", failed: &failed, ..Request::default() };
    let avoided = Period::new(NOW, Duration::from_millis(250));
    assert_eq!(picked(&mut fixture, &request), 1, "an endpoint that has not failed, however busy");
    fixture.avoided = vec![Period::default(), avoided];
    assert_eq!(picked(&mut fixture, &request), 3, "neither failed this request nor recently");
    fixture.avoided = vec![avoided; 4];
    assert_eq!(picked(&mut fixture, &request), 1, "all are avoided: not one that failed this request");
    let explanation = {
        let decision = fixture.decide(&request);
        fixture.pipeline.explain(&decision, &request, &fixture.input(), NOW)
    };
    assert_eq!(explanation.endpoints[0].verdict, Verdict::Excluded(Exclusion::Avoided));
    let hint = subset(&["192.168.1.1:8000", "192.168.1.3:8000"]);
    let request = Request { failed: &failed[..1], ..hint };
    fixture.avoided = vec![Period::default(), Period::default(), avoided];
    assert_eq!(picked(&mut fixture, &request), 2, "also before one that is avoided");
    let request = Request { failed: &failed, ..request };
    assert_eq!(picked(&mut fixture, &request), 0, "no other is left, and it is not avoided");
    let without_body = |request: &Request<'_>| {
        let mut rng = SplitMix64::new(1);
        fixture.pipeline.decide_without_body(request, &fixture.input(), NOW, &mut rng).outcome
    };
    assert_eq!(without_body(&Request { failed: &failed[..1], ..request }), Outcome::Route(vec![2, 0].into()));
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
