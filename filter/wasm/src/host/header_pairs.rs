//! Headers and trailers as Envoy passes them.
//!
//! The call of the SDK copies each name and each value into memory of its own, and traps when Envoy refuses
//! it, so Envoy's function is declared again here (docs/design/decisions/2002).

#![expect(unsafe_code, reason = "Envoy's function returns pointers")]

use core::ptr;

use endpoint_picker_engine::proxy::{ProxyError, Result};
use proxy_wasm::types::{MapType, Status};

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_pairs(map: u32, pairs: *mut *mut u8, length: *mut usize) -> u32;
}

/// Pairs in the encoding of proxy-wasm: their number, the lengths of all names and values, and then all names
/// and values, each followed by a zero byte. Numbers have four bytes, the least one first. Without a pair
/// there may be no byte.
pub(super) struct HeaderPairs(Box<[u8]>);

impl HeaderPairs {
    /// The pairs of a map. `call` names it in an error.
    pub(super) fn read(map: MapType, call: &'static str) -> Result<Self> {
        let (mut pairs, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the signature is that of proxy-wasm 0.2.1. Both pointers are of variables that outlive the
        // call, and Envoy keeps neither of them.
        let status = unsafe { proxy_get_header_map_pairs(map as u32, &raw mut pairs, &raw mut length) };
        if status != Status::Ok as u32 {
            return Err(ProxyError { call, status: format!("status {status}") });
        }
        if pairs.is_null() {
            return Ok(Self(Box::default()));
        }
        // SAFETY: Envoy has this memory from `proxy_on_memory_allocate` of the SDK, which leaves it a
        // `Vec<u8>` of this capacity, and has filled all of it.
        Ok(Self(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(pairs, length)) }))
    }

    /// Names and values, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (lengths, mut texts) = self.parts();
        let mut next = move |length: [u8; 4]| {
            let (text, rest) = texts.split_at_checked(u32::from_le_bytes(length) as usize)?;
            texts = rest.get(1..)?;
            Some(text)
        };
        let lengths = lengths.as_chunks().0.as_chunks().0.iter();
        lengths.map_while(move |&[name, value]| Some((next(name)?, next(value)?)))
    }

    /// Number of pairs, and an upper bound of the bytes of their names and values.
    pub(super) fn size(&self) -> (usize, usize) {
        let (lengths, texts) = self.parts();
        (lengths.len() / PAIR_OF_LENGTHS, texts.len())
    }

    /// The lengths, and the names and values.
    fn parts(&self) -> (&[u8], &[u8]) {
        let split = || {
            let (count, rest) = self.0.split_first_chunk()?;
            rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(PAIR_OF_LENGTHS)?)
        };
        split().unwrap_or_default()
    }
}

/// Bytes of the lengths of a name and its value.
const PAIR_OF_LENGTHS: usize = 8;
