//! A cluster of the module, and its balancers, during one hook.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::net::SocketAddr;
use core::ptr::{self, NonNull};

use super::scheduler::{Kind, Scheduler};
use super::types::{Buffer, EnvoyPtr};
use super::{callbacks, late};

/// A host of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host(NonNull<c_void>);

// SAFETY: the pointer is only handed back to Envoy, which keeps the host until it is removed.
unsafe impl Send for Host {}
// SAFETY: as above; a host is not read through the pointer.
unsafe impl Sync for Host {}

impl Host {
    pub(crate) fn as_ptr(self) -> EnvoyPtr {
        self.0.as_ptr()
    }
}

/// A cluster during one hook on the main thread.
#[derive(Debug)]
pub(crate) struct ClusterHandle<'hook> {
    cluster: EnvoyPtr,
    hook: PhantomData<&'hook mut c_void>,
}

impl ClusterHandle<'_> {
    /// # Safety
    /// `cluster` is the pointer that Envoy gave to the hook, and the handle is dropped before the hook ends.
    pub(crate) unsafe fn new(cluster: EnvoyPtr) -> Self {
        Self { cluster, hook: PhantomData }
    }

    /// A scheduler of this cluster; `None` if Envoy has none.
    pub(crate) fn scheduler(&self) -> Option<Scheduler> {
        // SAFETY: the pointer is valid during the hook, which runs on the main thread.
        unsafe { Scheduler::new(Kind::Cluster, self.cluster) }
    }

    /// The cluster can be used from now on. To be called once.
    pub(crate) fn complete_init(&mut self) {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::cluster_pre_init_complete(self.cluster) }
    }

    /// Adds hosts. Returns them in this order; `None` if Envoy refuses one, and then it adds none.
    pub(crate) fn add_hosts(&mut self, addresses: &[SocketAddr]) -> Option<Vec<Host>> {
        let count = addresses.len();
        let printed: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let addresses: Vec<Buffer> = printed.iter().map(|address| Buffer::of(address.as_bytes())).collect();
        let weights = vec![1; count];
        let no_locality = vec![Buffer::of(b""); count];
        let mut hosts = vec![ptr::null_mut(); count];
        // SAFETY: the pointer is valid during the hook; every array has `count` values and lives during the
        // call.
        let is_added = unsafe {
            callbacks::cluster_add_hosts(
                self.cluster,
                0,
                addresses.as_ptr(),
                weights.as_ptr(),
                no_locality.as_ptr(),
                no_locality.as_ptr(),
                no_locality.as_ptr(),
                ptr::null(),
                0,
                count,
                hosts.as_mut_ptr(),
            )
        };
        let hosts = hosts.into_iter().map(|host| NonNull::new(host).map(Host));
        if is_added { hosts.collect() } else { None }
    }

    /// Removes hosts.
    pub(crate) fn remove_hosts(&mut self, hosts: &[Host]) {
        let hosts: Vec<EnvoyPtr> = hosts.iter().map(|host| host.as_ptr()).collect();
        // SAFETY: the pointer is valid during the hook; the hosts are this cluster's and were not removed
        // before.
        unsafe { callbacks::cluster_remove_hosts(self.cluster, hosts.as_ptr(), hosts.len()) };
    }
}

/// A balancer while it chooses a host for one attempt.
#[derive(Debug)]
pub(crate) struct BalancerHandle<'hook> {
    /// Null if the choice is for no request.
    context: EnvoyPtr,
    hook: PhantomData<&'hook mut c_void>,
}

impl BalancerHandle<'_> {
    /// # Safety
    /// `context` is the pointer that Envoy gave to the hook, and the handle is dropped before the hook ends.
    pub(crate) unsafe fn new(context: EnvoyPtr) -> Self {
        Self { context, hook: PhantomData }
    }

    /// Whether this Envoy shows filter state to balancers: not before 1.39.
    pub(crate) fn reads_filter_state() -> bool {
        late::cluster_lb_context_get_filter_state_bytes().is_some()
    }

    /// A value that a filter of the request has set.
    pub(crate) fn filter_state(&self, key: &str) -> Option<&[u8]> {
        let read = late::cluster_lb_context_get_filter_state_bytes().filter(|_| !self.context.is_null())?;
        let mut value = Buffer::NULL;
        // SAFETY: the pointer is valid during the hook, the buffer and the result's place during the call.
        let is_found = unsafe { read(self.context, Buffer::of(key.as_bytes()), &raw mut value) };
        // SAFETY: the bytes live as long as filter state, which nothing changes during the hook.
        is_found.then(|| unsafe { value.bytes() })
    }
}
