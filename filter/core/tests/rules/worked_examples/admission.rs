//! Detectors and the admitter.

use endpoint_picker::request::Request;
use serde_json::{Value, json};

use super::{kept, load, only, plain, waiting};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, rejection};

fn sheddable() -> Request<'static> {
    Request { priority: -1, ..Request::default() }
}

#[test]
fn utilization_detector() {
    let fixture = |config: &Value, queue| Fixture::new(config, waiting(&[queue, 0]));
    let (status, ..) = rejection(&fixture(&plain("queue-scorer"), 10).decide(&sheddable(), 1));
    assert_eq!(status, 429);
    assert_eq!(destinations(&fixture(&plain("queue-scorer"), 9).decide(&sheddable(), 1)), [1]);
    assert_eq!(kept(&mut fixture(&plain("utilization-detector"), 10), &[]), [1]);
}

#[test]
fn concurrency_detector() {
    let mut config = only("concurrency-detector", &json!({"maxConcurrency": 10}));
    config["saturationDetector"] = json!("concurrency-detector");
    let mut fixture = Fixture::idle(&config, 2);
    fixture.in_flight = vec![load(15, 0), load(5, 0)];
    assert_eq!(rejection(&fixture.decide(&sheddable(), 1)).0, 429);
    assert_eq!(kept(&mut fixture, &[]), [1]);
}

#[test]
fn max_saturation_detector() {
    let saturates = |in_flight| {
        let detectors = json!(["utilization-detector", "concurrency-detector"]);
        let config = json!({
            "plugins": [
                {"type": "queue-scorer"}, {"type": "utilization-detector"},
                {"type": "concurrency-detector", "parameters": {"maxConcurrency": 10}},
                {"type": "max-saturation-detector", "parameters": {"detectors": detectors}},
            ],
            "saturationDetector": "max-saturation-detector",
        });
        let mut fixture = Fixture::new(&config, waiting(&[2]));
        fixture.in_flight = vec![load(in_flight, 0)];
        fixture.decide(&sheddable(), 1).destination().is_none()
    };
    assert!(saturates(12) && !saturates(9));
}

#[test]
fn probabilistic_admitter() {
    let plugins = json!([{"type": "queue-scorer"}, {"type": "probabilistic-admitter"}]);
    let turned_away = |queue| {
        let mut fixture = Fixture::new(&json!({"plugins": plugins}), waiting(&[queue]));
        (0..5_000).filter(|&seed| fixture.decide(&sheddable(), seed).destination().is_none()).count()
    };
    assert!((400..560).contains(&turned_away(1)), "{} of 5000", turned_away(1));
    assert_eq!(turned_away(4), 5_000);
}
