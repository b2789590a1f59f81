//! Headers and trailers in the encoding of proxy-wasm: their number, the lengths of all names and values, and
//! then all names and values, each followed by a zero byte. Numbers have four bytes, the least one first.
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

/// Encodes names and values.
pub(super) fn packed(headers: &[(&str, &str)]) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let count = u32::try_from(headers.len()).unwrap_or(u32::MAX).to_le_bytes();
    let lengths = headers.iter().flat_map(|(name, value)| [length(name), length(value)]).flatten();
    let texts = headers.iter().flat_map(|(name, value)| [name, value]);
    let texts = texts.flat_map(|text| text.bytes().chain([0]));
    count.into_iter().chain(lengths).chain(texts).collect()
}

/// The encoded lengths of a name and of its value.
type Lengths = [[u8; 4]; 2];

/// The pairs of a map, encoded. Without a pair there may be no byte.
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
        lengths.iter().map_while(move |&[name, value]| Some((next(name)?, next(value)?)))
    }

    /// Number of pairs, and an upper bound of the bytes of their names and values.
    pub(super) fn size(&self) -> (usize, usize) {
        let (lengths, texts) = self.parts();
        (lengths.len(), texts.len())
    }

    /// The lengths, and the names and values.
    fn parts(&self) -> (&[Lengths], &[u8]) {
        let split = || {
            let (count, rest) = self.0.split_first_chunk()?;
            let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(size_of::<Lengths>())?;
            let (lengths, texts) = rest.split_at_checked(bytes)?;
            Some((lengths.as_chunks().0.as_chunks().0, texts))
        };
        split().unwrap_or_default()
    }
}
