//! The configurations of the process: what a request may leave out because no other one is there.
//!
//! Nearly every process has one filter with the pool and no route with a picker of its own. Such a filter
//! asks for no route, and leaves no mark for a second picker, which costs Envoy some five thousand
//! instructions of a request.

use core::convert::Infallible;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use crate::process::registry::ProcessRegistry;

/// Filters of the process, with a picker or without. Envoy makes a configuration for each place in a chain.
static FILTERS: AtomicUsize = AtomicUsize::new(0);

/// Configurations of routes.
static ROUTES: AtomicUsize = AtomicUsize::new(0);

/// The pickers of each pool.
static POOLS: LazyLock<ProcessRegistry<Box<str>, PickersOfPool>> = LazyLock::new(ProcessRegistry::new);

/// The configurations of the process that pick for one pool.
#[derive(Debug, Default)]
pub(super) struct PickersOfPool {
    filters: AtomicUsize,
    routes: AtomicUsize,
}

/// Whether a route may have a configuration of its own.
pub(super) fn has_routes() -> bool {
    ROUTES.load(Ordering::Relaxed) > 0
}

impl PickersOfPool {
    /// The pickers of this pool.
    pub(super) fn of(pool: &str) -> Arc<Self> {
        let pickers = POOLS.get_or_make(pool.into(), || Ok::<_, Infallible>(Self::default()));
        pickers.unwrap_or_else(|error| match error {})
    }

    /// Whether one chain may have two of them. A route configures the filters of one name, of which a chain
    /// has several only where the process has.
    pub(super) fn may_share_chain(&self) -> bool {
        self.filters.load(Ordering::Relaxed) > 1
            || self.routes.load(Ordering::Relaxed) > 0 && FILTERS.load(Ordering::Relaxed) > 1
    }
}

/// A filter's configuration, which is counted until it is dropped.
#[derive(Debug)]
pub(super) struct CountedFilter(Option<Arc<PickersOfPool>>);

impl CountedFilter {
    /// Counts a filter that picks for this pool, or only where a route has it pick.
    pub(super) fn new(pool: Option<&str>) -> Self {
        let pickers = pool.map(PickersOfPool::of);
        FILTERS.fetch_add(1, Ordering::Relaxed);
        if let Some(pickers) = &pickers {
            pickers.filters.fetch_add(1, Ordering::Relaxed);
        }
        Self(pickers)
    }
}

impl Drop for CountedFilter {
    fn drop(&mut self) {
        FILTERS.fetch_sub(1, Ordering::Relaxed);
        if let Some(pickers) = &self.0 {
            pickers.filters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A route's configuration, which is counted until it is dropped.
#[derive(Debug)]
pub(super) struct CountedRoute(Option<Arc<PickersOfPool>>);

impl CountedRoute {
    /// Counts a route that has requests picked for this pool, or not picked.
    pub(super) fn new(pool: Option<&str>) -> Self {
        let pickers = pool.map(PickersOfPool::of);
        ROUTES.fetch_add(1, Ordering::Relaxed);
        if let Some(pickers) = &pickers {
            pickers.routes.fetch_add(1, Ordering::Relaxed);
        }
        Self(pickers)
    }
}

impl Drop for CountedRoute {
    fn drop(&mut self) {
        ROUTES.fetch_sub(1, Ordering::Relaxed);
        if let Some(pickers) = &self.0 {
            pickers.routes.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
