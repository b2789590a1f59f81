//! One pool in use, for any proxy.
//!
//! The rules ([`endpoint_picker`]) decide about one request at a time and remember nothing. This crate keeps everything that
//! they need beside the request. It does no I/O and reads no clock, so its tests need no proxy.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod ledger;
