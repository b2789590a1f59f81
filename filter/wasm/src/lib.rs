//! The Envoy filter: a thin proxy-wasm shell over [`endpoint_picker`].
//!
//! One VM runs in each Envoy worker and one on the main thread. Each has a [root context](root) per filter
//! configuration, which keeps the VM's copy of the pool, and a [stream](stream) per request, which lets the rules decide.
//! The VMs share what only one of them fetched through Envoy's shared data ([`board`]).
//!
//! No rule is here: what to decide is core's. [`host`] is the only file that talks to Envoy.

#![expect(missing_docs, reason = "the only public item is the entry point that the SDK's macro makes")]

mod answer_tokens;
mod board;
mod compiled;
mod config;
mod decide;
mod error_body;
mod fetcher;
mod headers;
mod host;
mod labels;
mod metric;
mod one_view;
mod pick;
mod policy;
mod pool_state;
mod reporter;
mod response;
mod root;
mod roster;
mod shared_log;
mod stats;
mod stream;
mod token_stats;
mod trial;
mod verdict;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
