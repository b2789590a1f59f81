//! A mock of Envoy: its callbacks over requests and configurations in memory, and calls of the module's
//! hooks.
//!
//! The callbacks keep what they are given and check what a real Envoy would crash on: pointers are of live
//! objects, calls come on the thread of the hook.

#![allow(unsafe_code, reason = "Envoy's interface is C")]

mod callbacks;
pub(crate) mod calls;
mod cluster;
mod config;
mod hooks;
mod request;
mod scheduler;
mod state;

pub(crate) use cluster::Cluster;
pub(crate) use config::{Config, Route};
pub(crate) use request::{Next, Request};
pub(crate) use scheduler::{late_commits, live_schedulers};
pub(crate) use state::{Panic, Value};

/// Workers of the mock.
pub(crate) const WORKERS: u32 = 4;

/// Bytes of Envoy or of the module.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) ptr: *const u8,
    pub(crate) length: usize,
}

impl Buffer {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { ptr: bytes.as_ptr(), length: bytes.len() }
    }

    /// The bytes, which the other side keeps during the call.
    pub(crate) fn bytes<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() {
            return &[];
        }
        // SAFETY: the other side gave `length` bytes at `ptr` for the current call.
        unsafe { core::slice::from_raw_parts(self.ptr, self.length) }
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

/// A header of Envoy or of the module.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) name: Buffer,
    pub(crate) value: Buffer,
}

fn write<T>(place: *mut T, value: T) {
    // SAFETY: the module gives a place for the result.
    unsafe { place.write(value) }
}

fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the module gives `count` values.
    unsafe { core::slice::from_raw_parts(first, count) }
}
