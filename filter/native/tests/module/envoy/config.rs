//! Configurations of the filter and of routes.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Buffer;

unsafe extern "C" {
    fn envoy_dynamic_module_on_http_filter_config_new(
        envoy: *mut c_void,
        name: Buffer,
        text: Buffer,
    ) -> *const c_void;
    fn envoy_dynamic_module_on_http_filter_config_destroy(module: *const c_void);
    fn envoy_dynamic_module_on_http_filter_config_scheduled(
        envoy: *mut c_void,
        module: *const c_void,
        event: u64,
    );
    fn envoy_dynamic_module_on_http_filter_per_route_config_new(name: Buffer, text: Buffer) -> *const c_void;
    fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(module: *const c_void);
}

/// A metric's name and values of its labels.
type Series = (String, Vec<(String, String)>);

/// Envoy's state of a filter configuration.
#[derive(Debug, Default)]
pub(crate) struct EnvoyConfig {
    pub(super) metrics: Mutex<Vec<(String, Vec<String>)>>,
    pub(super) amounts: Mutex<HashMap<Series, u64>>,
    /// Schedulers that are not deleted.
    pub(super) schedulers: AtomicUsize,
    pub(super) events: Mutex<Vec<u64>>,
}

/// A filter configuration in use.
pub(crate) struct Config {
    pub(super) envoy: Box<EnvoyConfig>,
    pub(super) module: *const c_void,
}

// SAFETY: the module's configuration is for all threads, and the mock's is behind locks.
unsafe impl Send for Config {}
// SAFETY: as above.
unsafe impl Sync for Config {}

impl Config {
    /// Takes a configuration into use; `None` if the module refuses it.
    pub(crate) fn new(json: &serde_json::Value) -> Option<Self> {
        let envoy = Box::<EnvoyConfig>::default();
        let text = json.to_string();
        // SAFETY: the pointer is of a live object that `Config` keeps, the text lives during the call.
        let module = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                (&raw const *envoy).cast_mut().cast(),
                Buffer::of(b"endpoint-picker"),
                Buffer::of(text.as_bytes()),
            )
        };
        (!module.is_null()).then(|| Self { envoy, module })
    }

    fn pointer(&self) -> *mut c_void {
        (&raw const *self.envoy).cast_mut().cast()
    }

    /// Does what the main thread has to do until a condition holds.
    pub(crate) fn run_until<T>(&self, what: &str, mut condition: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let events = core::mem::take(&mut *self.envoy.events.lock().unwrap());
            for event in events {
                // SAFETY: both pointers are of live objects.
                unsafe {
                    envoy_dynamic_module_on_http_filter_config_scheduled(self.pointer(), self.module, event);
                }
            }
            if let Some(result) = condition(self) {
                return result;
            }
            assert!(Instant::now() < deadline, "no {what} within 20 s");
            std::thread::yield_now();
        }
    }

    /// The value of a metric; `None` if the module has not written it.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.envoy.amounts.lock().unwrap().get(&(name.to_owned(), labels)).copied()
    }

    /// All metrics that the module has written, of any pool.
    pub(crate) fn written(&self) -> Vec<String> {
        self.envoy.amounts.lock().unwrap().keys().map(|(name, labels)| format!("{name}{labels:?}")).collect()
    }

    /// Waits until a metric has a value.
    pub(crate) fn wait_for(&self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.run_until(&format!("{name}{labels:?} of {value}"), |config| {
            (config.metric(name, labels) == Some(value)).then_some(())
        });
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: the module's pointer is of a live object, which this call frees.
        unsafe { envoy_dynamic_module_on_http_filter_config_destroy(self.module) };
        if !std::thread::panicking() {
            assert_eq!(self.envoy.schedulers.load(Ordering::SeqCst), 0, "a scheduler is left");
        }
    }
}

/// A route's configuration in use.
pub(crate) struct Route(pub(super) *const c_void);

impl Route {
    /// Takes a configuration into use; `None` if the module refuses it.
    pub(crate) fn new(json: &serde_json::Value) -> Option<Self> {
        let text = json.to_string();
        // SAFETY: the text lives during the call.
        let module = unsafe {
            envoy_dynamic_module_on_http_filter_per_route_config_new(
                Buffer::of(b"endpoint-picker"),
                Buffer::of(text.as_bytes()),
            )
        };
        (!module.is_null()).then(|| Self(module))
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: the module's pointer is of a live object, which this call frees.
        unsafe { envoy_dynamic_module_on_http_filter_per_route_config_destroy(self.0) }
    }
}
