//! The Envoy filter: proxy-wasm callbacks over the [engine](endpoint_picker_engine).
//!
//! One VM runs in each Envoy worker and one on the main thread. Each has a [root context](root) per filter
//! configuration, which keeps the [`worker`]'s copy of the pool up to date, and a [`stream`] per request. The
//! VMs share snapshots and the ledger through Envoy's shared data ([`endpoint_picker_workers`]).
//!
//! No rule is here, and only [`host`] calls Envoy.

#![expect(missing_docs, reason = "the only public item is the entry point that the SDK's macro makes")]
#![warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod body_watch;
mod host;
mod pool;
mod root;
mod stream;
mod worker;

/// A request makes many small allocations, also for values that Envoy returns. The C library's allocator
/// would take a quarter of the module's time.
#[cfg(target_family = "wasm")]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
