//! Counts of what hooks do besides computing, for the test that holds the budget of a request.
//!
//! Each thread counts for itself. Only a build with debug assertions counts: a module that serves has none of
//! it.

#![cfg_attr(feature = "loom", allow(dead_code, reason = "the locks of the scheduler are not counted"))]

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;

use endpoint_picker_engine::ledger::Ledger;

thread_local! {
    static COUNTS: RefCell<Vec<(String, u64)>> = const { RefCell::new(Vec::new()) };
    static HELD_LEDGERS: Cell<u32> = const { Cell::new(0) };
}

/// Takes what this thread has counted since the last call: the lock of each type, copies of shared pointers,
/// and reads of the clock.
pub fn take() -> Vec<(String, u64)> {
    COUNTS.with_borrow_mut(|counts| {
        let taken = counts.iter().filter(|(_, count)| *count > 0).cloned().collect();
        // The names stay, so that later counts allocate nothing.
        for (_, count) in counts {
            *count = 0;
        }
        taken
    })
}

/// Whether this thread holds the lock of a ledger.
pub fn holds_ledger() -> bool {
    HELD_LEDGERS.get() > 0
}

/// Counts a read of the clock.
pub(super) fn count_clock() {
    if cfg!(debug_assertions) {
        count(|name| name == "clock reads", || "clock reads".to_owned());
    }
}

/// Counts a copy of a pointer to a value that all threads share: two atomic writes to one cache line of all.
pub(super) fn count_copy<T>() {
    if cfg!(debug_assertions) {
        count_of::<T>("copies of the shared ");
    }
}

/// The time for which this thread holds the lock of a value.
#[derive(Debug)]
pub(super) struct Held<T>(PhantomData<T>);

impl<T> Held<T> {
    /// Counts a lock that this thread has taken.
    pub(super) fn new() -> Self {
        if cfg!(debug_assertions) {
            count_of::<T>("locks of ");
            HELD_LEDGERS.set(HELD_LEDGERS.get() + u32::from(is_ledger::<T>()));
        }
        Self(PhantomData)
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD_LEDGERS.set(HELD_LEDGERS.get() - u32::from(is_ledger::<T>()));
        }
    }
}

fn is_ledger<T>() -> bool {
    core::any::type_name::<T>() == core::any::type_name::<Ledger>()
}

/// Counts under these words and the type's own name, without its path and parameters.
fn count_of<T>(words: &str) {
    let name = core::any::type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    let name = path.rsplit("::").next().unwrap_or(path);
    count(|known| known.strip_prefix(words) == Some(name), || format!("{words}{name}"));
}

fn count(is_it: impl Fn(&str) -> bool, name: impl FnOnce() -> String) {
    // A thread that ends may run hooks of its own values after its counts.
    let _ = COUNTS.try_with(|counts| {
        let mut counts = counts.borrow_mut();
        match counts.iter_mut().find(|(known, _)| is_it(known)) {
            Some((_, count)) => *count += 1,
            None => counts.push((name(), 1)),
        }
    });
}
