//! Values of Envoy's workers.

use std::sync::Arc;

use crate::abi::concurrency;

/// A value for each of Envoy's workers, and one for its main thread.
#[derive(Debug)]
pub(super) struct PerWorker<T> {
    workers: Box<[Arc<T>]>,
    /// The value for requests on the main thread, such as requests to the admin interface.
    main: Arc<T>,
}

impl<T> PerWorker<T> {
    /// Makes a value for each worker by its number, and for the main thread by another number. To be called
    /// on the main thread.
    pub(super) fn new(mut make: impl FnMut(u32) -> T) -> Self {
        let workers = (0..concurrency()).map(|index| Arc::new(make(index))).collect();
        Self { workers, main: Arc::new(make(u32::MAX)) }
    }

    /// The value of a worker; of the main thread for any other number.
    pub(super) fn get(&self, index: u32) -> &Arc<T> {
        usize::try_from(index).ok().and_then(|index| self.workers.get(index)).unwrap_or(&self.main)
    }

    /// The values of workers.
    pub(super) fn of_requests(&self) -> impl Iterator<Item = &Arc<T>> {
        self.workers.iter()
    }

    /// The value of the main thread.
    pub(super) fn main(&self) -> &Arc<T> {
        &self.main
    }
}
