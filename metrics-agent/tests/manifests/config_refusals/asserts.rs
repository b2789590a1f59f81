//! Assertions on the message of a refusal.

use crate::reading::{config, refusal};

#[track_caller]
pub(super) fn assert_refused(body: &str, expected: &str) {
    assert_eq!(refusal(&config(body)), format!("document 1: {expected}"), "{body}");
}

#[track_caller]
pub(super) fn assert_refused_with(body: &str, begin: &str, parts: &[&str]) {
    let refusal = refusal(&config(body));
    assert!(refusal.starts_with(&format!("document 1: {begin}")), "{body}: {refusal}");
    assert_eq!(refusal.lines().count(), 1, "{refusal}");
    for part in parts {
        assert!(refusal.contains(part), "{body}: {refusal} lacks {part}");
    }
}
