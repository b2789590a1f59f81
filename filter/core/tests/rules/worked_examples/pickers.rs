//! Pickers.

use endpoint_picker::request::Request;
use serde_json::{Value, json};

use super::waiting;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, pod};

/// How often each of three endpoints comes first; 10, 0 and 5 requests wait, so the totals are 0, 1 and 0.5.
fn firsts(picker: &Value) -> [u32; 3] {
    let config = json!({"plugins": [{"type": "queue-scorer"}, picker]});
    let mut fixture = Fixture::new(&config, waiting(&[10, 0, 5]));
    let mut firsts = [0; 3];
    for seed in 0..6_000 {
        firsts[fixture.decide(&Request::default(), seed).destination().unwrap()] += 1;
    }
    firsts
}

#[test]
fn max_score_picker() {
    let picker = json!({"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": 2}});
    let config = json!({"plugins": [{"type": "queue-scorer"}, picker]});
    assert_eq!(destinations(&Fixture::new(&config, waiting(&[10, 0, 5])).send("x", &[])), [1, 2]);
}

#[test]
fn random_picker() {
    let firsts = firsts(&json!({"type": "random-picker"}));
    assert!(firsts.iter().all(|first| (1_850..2_150).contains(first)), "{firsts:?}");
}

#[test]
fn weighted_random_picker() {
    let config =
        json!({"plugins": [{"type": "kv-cache-utilization-scorer"}, {"type": "weighted-random-picker"}]});
    let mut fixture = Fixture::new(&config, vec![pod(0, 0.75, &[]), pod(0, 0.25, &[])]);
    let second =
        (0..8_000).filter(|&seed| destinations(&fixture.decide(&Request::default(), seed)) == [1]).count();
    assert!((5_850..6_150).contains(&second), "{second} of 8000");
}
