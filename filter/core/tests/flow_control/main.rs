//! The queue in front of a pool.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod eviction;
mod fixture;
mod inputs;
mod limits;
mod oracle;
mod order;
mod properties;
mod retries;
mod run;
mod sessions;
mod shares;
mod tenants;
mod times;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use wasm_bindgen_test::wasm_bindgen_test as test;
