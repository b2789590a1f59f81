//! Hooks of configurations, all on the main thread.

use core::ptr;

use super::caught;
use crate::abi::ConfigHandle;
use crate::abi::types::{Buffer, EnvoyPtr, ModulePtr};
use crate::envoy::filter_config::{FilterConfig, RouteConfig};

/// A filter configuration arrived. A null pointer refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    config: EnvoyPtr,
    _name: Buffer,
    text: Buffer,
) -> ModulePtr {
    // SAFETY: Envoy gives its pointer and the text for this hook.
    let (mut handle, text) = unsafe { (ConfigHandle::new(config), text.bytes()) };
    accepted(caught(|| FilterConfig::new(&mut handle, text)))
}

/// A route's configuration arrived. A null pointer refuses it.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
    _name: Buffer,
    text: Buffer,
) -> ModulePtr {
    // SAFETY: Envoy gives the text for this hook.
    let text = unsafe { text.bytes() };
    accepted(caught(|| RouteConfig::new(text)))
}

/// The pointer for Envoy. The reason of a refusal is only in the log: Envoy reports that the module refused.
pub(super) fn accepted<T>(config: Option<Result<T, String>>) -> ModulePtr {
    match config {
        Some(Ok(config)) => Box::into_raw(Box::new(config)).cast_const().cast(),
        Some(Err(reason)) => {
            ::log::error!("the configuration is refused: {reason}");
            ptr::null()
        }
        None => ptr::null(),
    }
}

/// No request uses the configuration any more.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: ModulePtr) {
    // SAFETY: the pointer came from `accepted` as this type, and Envoy calls this hook once.
    let config = unsafe { Box::from_raw(config.cast_mut().cast::<FilterConfig>()) };
    caught(|| drop(config));
}

/// No route uses the configuration any more.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(config: ModulePtr) {
    // SAFETY: the pointer came from `accepted` as this type, and Envoy calls this hook once.
    let config = unsafe { Box::from_raw(config.cast_mut().cast::<RouteConfig>()) };
    caught(|| drop(config));
}

/// A wake that a scheduler has sent.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    config: EnvoyPtr,
    module: ModulePtr,
    _event: u64,
) {
    // SAFETY: Envoy gives its pointer for this hook, and the module's came from `accepted` as this type.
    let (mut handle, module) = unsafe { (ConfigHandle::new(config), &*module.cast::<FilterConfig>()) };
    caught(|| module.on_scheduled(&mut handle));
}
