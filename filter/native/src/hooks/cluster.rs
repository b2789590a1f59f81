//! Hooks of clusters on the main thread, and of their balancers, one on each worker.

use core::ptr;

use super::caught;
use super::filter_config::accepted;
use crate::abi::types::{Buffer, EnvoyPtr, ModulePtr};
use crate::abi::{BalancerHandle, ClusterHandle, Host};
use crate::cluster::balancer::Balancer;
use crate::cluster::{Cluster, ClusterConfig};

/// A cluster's configuration arrived. A null pointer refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_config_new(
    _config: EnvoyPtr,
    _name: Buffer,
    text: Buffer,
) -> ModulePtr {
    // SAFETY: Envoy gives the text for this hook.
    let text = unsafe { text.bytes() };
    accepted(caught(|| ClusterConfig::new(text)))
}

/// No cluster uses the configuration any more.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_config_destroy(config: ModulePtr) {
    // SAFETY: the pointer came from `accepted` as this type, and Envoy calls this hook once.
    let config = unsafe { Box::from_raw(config.cast_mut().cast::<ClusterConfig>()) };
    caught(|| drop(config));
}

/// A cluster is made.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_new(config: ModulePtr, _cluster: EnvoyPtr) -> ModulePtr {
    // SAFETY: the pointer is a configuration's, which Envoy keeps during the hook.
    let config = unsafe { &*config.cast::<ClusterConfig>() };
    accepted(caught(|| Ok(Cluster::new(config))))
}

/// A cluster begins. Envoy waits for it until the module completes the initialization.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_init(cluster: EnvoyPtr, module: ModulePtr) {
    // SAFETY: Envoy gives its pointer for this hook, and the module's came from `accepted` as this type.
    let (mut handle, module) = unsafe { (ClusterHandle::new(cluster), &*module.cast::<Cluster>()) };
    // After a panic nothing else would end the initialization, and Envoy would wait for it without limit.
    if caught(|| module.init(&mut handle)).is_none() {
        handle.complete_init();
    }
}

/// A wake that a scheduler has sent.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_scheduled(cluster: EnvoyPtr, module: ModulePtr, _event: u64) {
    // SAFETY: as above.
    let (mut handle, module) = unsafe { (ClusterHandle::new(cluster), &*module.cast::<Cluster>()) };
    caught(|| module.update(&mut handle));
}

/// The cluster ends.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_destroy(module: ModulePtr) {
    // SAFETY: the pointer came from `accepted` as this type, and Envoy calls this hook once.
    let module = unsafe { Box::from_raw(module.cast_mut().cast::<Cluster>()) };
    caught(|| drop(module));
}

/// A worker gets a balancer.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_lb_new(cluster: ModulePtr, _balancer: EnvoyPtr) -> ModulePtr {
    // SAFETY: the pointer is a cluster's, which Envoy keeps during the hook.
    let cluster = unsafe { &*cluster.cast::<Cluster>() };
    accepted(caught(|| Ok(cluster.balancer())))
}

/// A worker's balancer ends.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_lb_destroy(balancer: ModulePtr) {
    // SAFETY: the pointer came from `accepted` as this type, and Envoy calls this hook once.
    let balancer = unsafe { Box::from_raw(balancer.cast_mut().cast::<Balancer>()) };
    caught(|| drop(balancer));
}

/// Chooses the host of one attempt; with a null pointer the attempt has none.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_cluster_lb_choose_host(
    balancer: ModulePtr,
    context: EnvoyPtr,
    host: *mut EnvoyPtr,
    pending: *mut EnvoyPtr,
) {
    // SAFETY: the pointer is this worker's balancer, and Envoy uses a balancer on its worker alone.
    let balancer = unsafe { &*balancer.cast::<Balancer>() };
    // SAFETY: Envoy gives the pointer for this hook.
    let handle = unsafe { BalancerHandle::new(context) };
    let chosen = caught(|| balancer.choose(&handle)).flatten();
    // SAFETY: Envoy gives places for both results.
    unsafe {
        // Null for `pending`: the choice is made, and no later call will bring a host.
        host.write(chosen.map_or(ptr::null_mut(), Host::as_ptr));
        pending.write(ptr::null_mut());
    }
}
