//! Clusters of the module.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::request::Request;
use super::{Buffer, list, write};

unsafe extern "C" {
    fn envoy_dynamic_module_on_cluster_config_new(
        envoy: *mut c_void,
        name: Buffer,
        text: Buffer,
    ) -> *const c_void;
    fn envoy_dynamic_module_on_cluster_config_destroy(config: *const c_void);
    fn envoy_dynamic_module_on_cluster_new(config: *const c_void, envoy: *mut c_void) -> *const c_void;
    fn envoy_dynamic_module_on_cluster_init(envoy: *mut c_void, cluster: *const c_void);
    fn envoy_dynamic_module_on_cluster_scheduled(envoy: *mut c_void, cluster: *const c_void, event: u64);
    fn envoy_dynamic_module_on_cluster_destroy(cluster: *const c_void);
    fn envoy_dynamic_module_on_cluster_lb_new(cluster: *const c_void, envoy: *mut c_void) -> *const c_void;
    fn envoy_dynamic_module_on_cluster_lb_destroy(balancer: *const c_void);
    fn envoy_dynamic_module_on_cluster_lb_choose_host(
        balancer: *const c_void,
        context: *mut c_void,
        host: *mut *mut c_void,
        pending: *mut *mut c_void,
    );
}

/// Envoy's state of a cluster. A host's pointer is its place, from 1.
#[derive(Debug, Default)]
struct EnvoyCluster {
    /// `None` once removed.
    hosts: Mutex<Vec<Option<String>>>,
    /// The addresses that Envoy refuses as hosts.
    refused: Vec<String>,
    is_ready: AtomicBool,
    schedulers: AtomicUsize,
    events: Mutex<Vec<u64>>,
}

fn cluster<'a>(envoy: *mut c_void) -> &'a EnvoyCluster {
    // SAFETY: the module calls with the pointer of a live cluster.
    unsafe { &*envoy.cast::<EnvoyCluster>() }
}

/// A cluster with a balancer of one worker.
pub(crate) struct Cluster {
    envoy: Box<EnvoyCluster>,
    config: *const c_void,
    module: *const c_void,
    balancer: *const c_void,
}

impl Cluster {
    /// A cluster with this configuration; `None` if the module refuses it.
    pub(crate) fn new(json: &serde_json::Value) -> Option<Self> {
        Self::refusing(json, Vec::new())
    }

    /// A cluster in an Envoy that refuses hosts with these addresses.
    pub(crate) fn refusing(json: &serde_json::Value, refused: Vec<String>) -> Option<Self> {
        let envoy = Box::new(EnvoyCluster { refused, ..EnvoyCluster::default() });
        let pointer = (&raw const *envoy).cast_mut().cast();
        let text = json.to_string();
        // SAFETY: the text lives during the call.
        let config = unsafe {
            envoy_dynamic_module_on_cluster_config_new(
                ptr::null_mut(),
                Buffer::of(b"endpoint-picker"),
                Buffer::of(text.as_bytes()),
            )
        };
        if config.is_null() {
            return None;
        }
        // SAFETY: all pointers are of live objects.
        let (module, balancer) = unsafe {
            let module = envoy_dynamic_module_on_cluster_new(config, pointer);
            envoy_dynamic_module_on_cluster_init(pointer, module);
            (module, envoy_dynamic_module_on_cluster_lb_new(module, pointer))
        };
        Some(Self { envoy, config, module, balancer })
    }

    /// Does what the main thread has to do.
    pub(crate) fn run(&self) {
        let events = core::mem::take(&mut *self.envoy.events.lock().unwrap());
        for event in events {
            let pointer = (&raw const *self.envoy).cast_mut().cast();
            // SAFETY: both pointers are of live objects.
            unsafe { envoy_dynamic_module_on_cluster_scheduled(pointer, self.module, event) };
        }
    }

    /// Does what the main thread has to do until a condition holds.
    pub(crate) fn run_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.run();
            if condition(self) {
                return;
            }
            assert!(Instant::now() < deadline, "not within 20 s: {what}");
            std::thread::yield_now();
        }
    }

    /// Whether the main thread has something to do.
    pub(crate) fn is_woken(&self) -> bool {
        !self.envoy.events.lock().unwrap().is_empty()
    }

    /// Whether its initialization has ended: Envoy serves no request before that.
    pub(crate) fn is_ready(&self) -> bool {
        self.envoy.is_ready.load(Ordering::SeqCst)
    }

    /// The addresses of all hosts.
    pub(crate) fn hosts(&self) -> Vec<String> {
        self.envoy.hosts.lock().unwrap().iter().flatten().cloned().collect()
    }

    /// The address of the next attempt's host.
    pub(crate) fn choose(&self, request: Option<&Request>) -> Option<String> {
        let context = request.map_or(ptr::null_mut(), Request::pointer);
        let (mut host, mut pending) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: all pointers are of live objects.
        unsafe {
            envoy_dynamic_module_on_cluster_lb_choose_host(
                self.balancer,
                context,
                &raw mut host,
                &raw mut pending,
            );
        }
        assert!(pending.is_null());
        let place = host.addr().checked_sub(1)?;
        Some(self.envoy.hosts.lock().unwrap()[place].clone().expect("a host that was removed"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: all pointers are of live objects, which these calls free.
        unsafe {
            envoy_dynamic_module_on_cluster_lb_destroy(self.balancer);
            envoy_dynamic_module_on_cluster_destroy(self.module);
            envoy_dynamic_module_on_cluster_config_destroy(self.config);
        }
        if !std::thread::panicking() {
            assert_eq!(self.envoy.schedulers.load(Ordering::SeqCst), 0, "a scheduler is left");
        }
    }
}

super::callbacks::callbacks! {
    fn cluster_add_hosts(
        envoy: *mut c_void,
        priority: u32,
        addresses: *const Buffer,
        weights: *const u32,
        _regions: *const Buffer,
        _zones: *const Buffer,
        _sub_zones: *const Buffer,
        _metadata: *const Buffer,
        _metadata_per_host: usize,
        count: usize,
        hosts: *mut *mut c_void,
    ) -> bool {
        assert_eq!(priority, 0);
        assert_eq!(list(weights, count), vec![1; count]);
        let cluster = cluster(envoy);
        if list(addresses, count).iter().any(|address| cluster.refused.contains(&address.text())) {
            return false;
        }
        let known = &mut *cluster.hosts.lock().unwrap();
        for (index, address) in list(addresses, count).iter().enumerate() {
            known.push(Some(address.text()));
            // SAFETY: the module gives room for all hosts.
            unsafe { hosts.add(index).write(ptr::without_provenance_mut(known.len())) };
        }
        true
    }
    fn cluster_remove_hosts(envoy: *mut c_void, hosts: *const *mut c_void, count: usize) -> usize {
        for host in list(hosts, count) {
            let removed = cluster(envoy).hosts.lock().unwrap()[host.addr() - 1].take();
            assert!(removed.is_some(), "removed twice");
        }
        count
    }
    fn cluster_pre_init_complete(envoy: *mut c_void) {
        assert!(!cluster(envoy).is_ready.swap(true, Ordering::SeqCst), "completed twice");
    }
    fn cluster_scheduler_new(envoy: *mut c_void) -> *mut c_void {
        cluster(envoy).schedulers.fetch_add(1, Ordering::SeqCst);
        envoy
    }
    fn cluster_scheduler_commit(scheduler: *mut c_void, event: u64) {
        cluster(scheduler).events.lock().unwrap().push(event);
    }
    fn cluster_scheduler_delete(scheduler: *mut c_void) {
        cluster(scheduler).schedulers.fetch_sub(1, Ordering::SeqCst);
    }
    fn cluster_lb_context_get_filter_state_bytes(context: *mut c_void, key: Buffer, value: *mut Buffer) -> bool {
        let request = super::state::of_pointer(context);
        let state = request.filter_state.borrow();
        state.get(&key.text()).map(|bytes| write(value, Buffer::of(bytes))).is_some()
    }
}

/// The module looks it up by name; without a use here the linker would drop it.
#[used]
static LATE: extern "C" fn(*mut c_void, Buffer, *mut Buffer) -> bool =
    cluster_lb_context_get_filter_state_bytes;
