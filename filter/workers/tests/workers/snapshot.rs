//! The published snapshot.

use std::time::Duration;

use endpoint_picker_workers::{NewSnapshot, SharedData, SharedSnapshot};

use crate::fixture::{POOL, START};
use crate::memory::{Calls, Memory};

#[test]
fn a_published_snapshot_is_found_once() {
    let memory = Memory::default();
    let snapshot = SharedSnapshot::new(POOL);
    assert_eq!(snapshot.newer(&memory, None, START), Ok(None));
    snapshot.publish(&memory, b"first", 7, true, START).unwrap();
    let found = snapshot.newer(&memory, None, START).unwrap();
    assert_eq!(found, Some(NewSnapshot { version: 7, arrived: START, bytes: b"first".to_vec() }));
    memory.take_calls();
    assert_eq!(snapshot.newer(&memory, Some((7, START)), START), Ok(None));
    assert_eq!(memory.take_calls(), Calls { gets: 1, sets: 0, swaps: 0 });
    snapshot.publish(&memory, b"second", 8, false, START).unwrap();
    let found = snapshot.newer(&memory, Some((7, START)), START).unwrap().unwrap();
    assert_eq!((found.version, found.bytes), (8, b"second".to_vec()));
    assert_eq!(snapshot.topology(&memory), Ok(b"first".to_vec()));
}

#[test]
fn a_refused_version_is_not_read_again() {
    let memory = Memory::default();
    let mut snapshot = SharedSnapshot::new(POOL);
    snapshot.publish(&memory, b"bad", 7, true, START).unwrap();
    snapshot.refuse(7);
    assert_eq!(snapshot.newer(&memory, None, START), Ok(None));
    snapshot.publish(&memory, b"good", 8, true, START).unwrap();
    assert!(snapshot.newer(&memory, None, START).unwrap().is_some());
}

#[test]
fn a_snapshot_from_before_the_clock_was_set_back_counts_as_of_now() {
    let memory = Memory::default();
    let snapshot = SharedSnapshot::new(POOL);
    snapshot.publish(&memory, b"it", 7, true, START).unwrap();
    let back = START.checked_sub(Duration::from_secs(60)).unwrap();
    let found = snapshot.newer(&memory, Some((7, START)), back).unwrap().unwrap();
    assert_eq!((found.version, found.arrived), (7, back));
    assert_eq!(snapshot.newer(&memory, Some((7, back)), back), Ok(None));
}

#[test]
fn half_written_values_are_no_snapshot() {
    let memory = Memory::default();
    let snapshot = SharedSnapshot::new(POOL);
    snapshot.publish(&memory, b"it", 7, true, START).unwrap();
    memory.set(&memory.key("/readings"), b"1234567").unwrap();
    assert_eq!(snapshot.newer(&memory, None, START), Ok(None));
    memory.set(&memory.key("/version"), b"").unwrap();
    assert_eq!(snapshot.newer(&memory, None, START), Ok(None));
}
