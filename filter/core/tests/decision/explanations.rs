//! Explanations of decisions.

use endpoint_picker::decision::explanation::Verdict;
use endpoint_picker::input::Exclusion;
use endpoint_picker::request::Request;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, subset};

#[test]
fn a_short_explanation_lists_the_best_first() {
    let mut fixture = Fixture::new(&[(3, 0.2), (0, 0.1), (0, 0.0), (1, 0.3)]);
    fixture.readings[2].ready = false;
    let request = Request::default();
    let decision = fixture.decide(&request);
    let explanation = fixture.pipeline.explain(&decision, &request, &fixture.input(), NOW);
    let text = explanation.within(8_000);
    let order = [".2:8000 queue", "picked 1", ".4:8000 queue", ".1:8000 queue", ".3:8000 not ready"];
    let places: Vec<usize> = order.iter().map(|part| text.find(part).expect(&text)).collect();
    assert!(text.starts_with("routed; ") && places.is_sorted(), "{text}");
    let short = explanation.within(200);
    assert!(short.len() <= 200 && short.contains("picked 1") && short.ends_with(" more"), "{short}");
    assert_eq!(explanation.within(3), "rou");
}

#[test]
fn a_decision_explains_every_endpoint() {
    let mut fixture = Fixture::new(&[(3, 0.2), (0, 0.1), (0, 0.0), (0, 0.0)]);
    fixture.readings[2].ready = false;
    let request = subset(&["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000"]);
    let decision = fixture.decide(&request);
    let explanation = fixture.pipeline.explain(&decision, &request, &fixture.input(), NOW);
    let verdicts: Vec<&Verdict> = explanation.endpoints.iter().map(|endpoint| &endpoint.verdict).collect();
    assert_eq!(verdicts[2], &Verdict::Excluded(Exclusion::NotReady));
    assert_eq!(verdicts[3], &Verdict::Excluded(Exclusion::OutsideSubset));
    let Verdict::Scored { scores, total, place } = verdicts[1] else { panic!("{verdicts:?}") };
    assert_eq!(*place, Some(0));
    let scores_by_name: Vec<_> =
        scores.iter().map(|score| (score.scorer.as_str(), score.score, score.weight)).collect();
    let expected = [
        ("queue-scorer", 1.0, 2.0),
        ("kv-cache-utilization-scorer", 0.9, 2.0),
        ("prefix-cache-scorer", 0.0, 3.0),
    ];
    assert_eq!(scores_by_name, expected);
    assert!((total - 3.8).abs() < 1e-9);
    let text = explanation.to_string();
    assert!(
        text.contains("192.168.1.2:8000 queue-scorer 1.000x2") && text.contains("outside the subset hint"),
        "{text}"
    );
}
