//! The thread's calls between the mock and the module.

use core::cell::{Cell, RefCell};

thread_local! {
    static IS_IN_MODULE: Cell<bool> = const { Cell::new(false) };
    /// The callback's names with the numbers of calls; `None` before they are asked for: a bench does not pay
    /// for counting.
    static CALLS: RefCell<Option<Vec<(&'static str, u64)>>> = const { RefCell::new(None) };
}

/// The side that runs until this is dropped.
pub(crate) struct Side {
    was_in_module: bool,
}

impl Side {
    /// A hook of the module runs.
    pub(crate) fn hook() -> Self {
        Self { was_in_module: IS_IN_MODULE.replace(true) }
    }

    /// A callback of Envoy runs, which is counted if the module has called it.
    pub(super) fn callback(name: &'static str) -> Self {
        let was_in_module = IS_IN_MODULE.replace(false);
        if was_in_module {
            CALLS.with_borrow_mut(|calls| {
                let Some(calls) = calls else { return };
                match calls.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, count)) => *count += 1,
                    None => calls.push((name, 1)),
                }
            });
        }
        Self { was_in_module }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        IS_IN_MODULE.set(self.was_in_module);
    }
}

/// Whether this thread runs code of the module.
#[allow(dead_code, reason = "the test of the budget uses it")]
pub(crate) fn is_in_module() -> bool {
    IS_IN_MODULE.get()
}

/// Takes the numbers of calls that hooks on this thread have made since the last call of this function, by
/// the callback's name. They are counted from its first call on.
#[allow(dead_code, reason = "the test of the budget uses it")]
pub(crate) fn take() -> Vec<(&'static str, u64)> {
    CALLS.replace(Some(Vec::new())).unwrap_or_default()
}
