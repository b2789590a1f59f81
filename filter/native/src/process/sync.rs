//! The lock and the swap by which threads share state. With the feature `loom`, each access is a step of a
//! scheduler that tries interleavings.

#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(feature = "loom"))]
pub(crate) use real::Swap;
#[cfg(feature = "loom")]
pub(crate) use simulated::Mutex;
#[cfg(feature = "loom")]
pub(crate) use simulated::Swap;

#[cfg(not(feature = "loom"))]
mod real {
    use core::ops::Deref;
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    /// A value that is replaced as a whole. Readers never wait.
    pub(crate) struct Swap<T>(ArcSwap<T>);

    impl<T> Swap<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            Self(ArcSwap::new(value))
        }

        /// The newest value, for as long as it is borrowed.
        pub(crate) fn borrow(&self) -> impl Deref<Target = Arc<T>> {
            self.0.load()
        }

        /// The newest value.
        pub(crate) fn get(&self) -> Arc<T> {
            self.0.load_full()
        }

        pub(crate) fn set(&self, value: Arc<T>) {
            self.0.store(value);
        }
    }
}

#[cfg(feature = "loom")]
mod simulated {
    use core::ops::Deref;
    use std::sync::{Arc, PoisonError};

    /// As `parking_lot::Mutex`.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A step of the scheduler at every access, as between any two instructions of a thread.
    pub(crate) struct Swap<T>(Mutex<Arc<T>>);

    impl<T> Swap<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn borrow(&self) -> impl Deref<Target = Arc<T>> + use<T> {
            Box::new(self.get())
        }

        pub(crate) fn get(&self) -> Arc<T> {
            Arc::clone(&self.0.lock())
        }

        pub(crate) fn set(&self, value: Arc<T>) {
            *self.0.lock() = value;
        }
    }
}
