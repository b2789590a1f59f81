//! The lock and the swap by which threads share state. With the feature `loom`, each access is a step of a
//! scheduler that tries interleavings.

use std::sync::Arc;

#[cfg(not(feature = "loom"))]
pub(crate) use real::{Mutex, MutexGuard, Swap};
#[cfg(feature = "loom")]
pub(crate) use simulated::{Mutex, MutexGuard, Swap};

/// A value of a [`Swap`] that is borrowed, which writes nothing that threads share.
pub(crate) type Borrowed<T> = arc_swap::Guard<Arc<T>>;

#[cfg(not(feature = "loom"))]
mod real {
    use core::ops::{Deref, DerefMut};
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    use super::Borrowed;
    use crate::process::counts::{self, Held};

    /// A lock, whose uses are [counted](counts).
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { guard: self.0.lock(), _held: Held::new() }
        }
    }

    /// The value of a lock, for as long as it is held.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        guard: parking_lot::MutexGuard<'a, T>,
        _held: Held<T>,
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    /// A value that is replaced as a whole. Readers never wait.
    pub(crate) struct Swap<T>(ArcSwap<T>);

    impl<T> Swap<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            Self(ArcSwap::new(value))
        }

        /// The newest value, for as long as it is borrowed.
        pub(crate) fn borrow(&self) -> Borrowed<T> {
            self.0.load()
        }

        /// The newest value.
        pub(crate) fn get(&self) -> Arc<T> {
            counts::count_copy::<T>();
            self.0.load_full()
        }

        pub(crate) fn set(&self, value: Arc<T>) {
            self.0.store(value);
        }
    }
}

#[cfg(feature = "loom")]
mod simulated {
    use std::sync::{Arc, PoisonError};

    use arc_swap::Guard;

    pub(crate) use loom::sync::MutexGuard;

    use super::Borrowed;

    /// As the real one.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A step of the scheduler at every access, as between any two instructions of a thread.
    pub(crate) struct Swap<T>(Mutex<Arc<T>>);

    impl<T> Swap<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn borrow(&self) -> Borrowed<T> {
            Guard::from_inner(self.get())
        }

        pub(crate) fn get(&self) -> Arc<T> {
            Arc::clone(&self.0.lock())
        }

        pub(crate) fn set(&self, value: Arc<T>) {
            *self.0.lock() = value;
        }
    }
}
