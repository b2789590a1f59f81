//! A count of the memory that the module's hooks allocate.

#![allow(unsafe_code, reason = "an allocator is unsafe")]

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

use endpoint_picker_native::counts;

use crate::envoy::calls;

/// The system's allocator, which counts by thread what the module allocates.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static UNDER_LEDGER: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    if calls::is_in_module() {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        UNDER_LEDGER.set(UNDER_LEDGER.get() + u64::from(counts::holds_ledger()));
        BYTES.set(BYTES.get() + bytes as u64);
    }
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Takes the numbers since the last call on this thread.
pub(crate) fn take() -> [(String, u64); 3] {
    [
        ("allocations".to_owned(), ALLOCATIONS.take()),
        ("allocations under the ledger's lock".to_owned(), UNDER_LEDGER.take()),
        ("allocated bytes".to_owned(), BYTES.take()),
    ]
}
