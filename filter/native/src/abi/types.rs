//! The values that cross the interface.

use core::ffi::c_void;
use core::{ptr, slice};

/// A pointer to one of Envoy's objects.
pub(crate) type EnvoyPtr = *mut c_void;

/// A pointer to one of the module's objects, as Envoy keeps it.
pub(crate) type ModulePtr = *const c_void;

/// Bytes of Envoy or of the module.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    ptr: *const u8,
    length: usize,
}

impl Buffer {
    /// No bytes. In the place of a header's value it removes the header; empty bytes do not.
    pub(super) const NULL: Self = Self { ptr: ptr::null(), length: 0 };

    /// Bytes of the module, for one call.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { ptr: bytes.as_ptr(), length: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// The buffer is Envoy's, and Envoy keeps it for `'a`.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: Envoy gives `length` initialized bytes at `ptr`, and keeps them as the caller promises.
        unsafe { slice::from_raw_parts(self.ptr, self.length) }
    }
}

/// A header of Envoy or of the module.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Header {
    name: Buffer,
    value: Buffer,
}

impl Header {
    pub(super) const NULL: Self = Self { name: Buffer::NULL, value: Buffer::NULL };

    /// A header of the module, for one call.
    pub(super) fn of(name: &str, value: &str) -> Self {
        Self { name: Buffer::of(name.as_bytes()), value: Buffer::of(value.as_bytes()) }
    }

    /// A header of the module in bytes, for one call.
    pub(super) fn of_bytes(name: &[u8], value: &[u8]) -> Self {
        Self { name: Buffer::of(name), value: Buffer::of(value) }
    }

    /// Name and value.
    ///
    /// # Safety
    /// As [`Buffer::bytes`].
    pub(crate) unsafe fn bytes<'a>(self) -> (&'a [u8], &'a [u8]) {
        // SAFETY: as the caller promises.
        unsafe { (self.name.bytes(), self.value.bytes()) }
    }
}
