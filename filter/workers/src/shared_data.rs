//! The map of keys to bytes that all workers of a proxy share.

use core::fmt;

use crate::words::{bytes, first_word};

/// A map of keys to bytes that all workers of a proxy share, such as Envoy's shared data.
pub trait SharedData {
    /// Why the proxy refused a call.
    type Error: fmt::Display;

    /// Reads a value; an absent one is empty and has no version.
    fn get(&self, key: &str) -> Result<Versioned, Self::Error>;

    /// Writes a value unconditionally.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Self::Error>;

    /// Writes a value if the present one still has this version; returns whether it had. Without a version it
    /// writes unconditionally.
    fn compare_and_swap(&self, key: &str, value: &[u8], version: Option<u32>) -> Result<bool, Self::Error>;
}

/// A value of [`SharedData`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub bytes: Vec<u8>,
    /// Rises by one with every write, of this key or of any other; `None` for a value that was never written.
    pub version: Option<u32>,
}

/// Returns a number that no other worker of this proxy has or had. It is 1 or more.
pub fn next_worker_number<S: SharedData>(data: &S) -> Result<u64, S::Error> {
    const KEY: &str = "endpoint-picker/vms";
    create(data, KEY, &[])?;
    loop {
        let Versioned { bytes: value, version } = data.get(KEY)?;
        let next = first_word(&value).unwrap_or(0) + 1;
        if data.compare_and_swap(KEY, &bytes([next]), version)? {
            return Ok(next);
        }
    }
}

/// Writes a first value, so that there is a version to compare.
///
/// Two workers that write the first value at the same time do not notice each other. That does not happen:
/// the proxy starts its first worker before all others.
pub(crate) fn create<S: SharedData>(data: &S, key: &str, value: &[u8]) -> Result<(), S::Error> {
    match data.get(key)?.version {
        Some(_) => Ok(()),
        None => data.set(key, value),
    }
}

/// The key of a pool's value.
pub(crate) fn key(pool: &str, name: &str) -> String {
    format!("endpoint-picker/{}/{pool}/{name}", env!("CARGO_PKG_VERSION"))
}
