//! Shared data in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use endpoint_picker_workers::{SharedData, Versioned, words};

/// Shared data in memory; clones have the same values.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Values>>);

#[derive(Default)]
struct Values {
    values: HashMap<String, Versioned>,
    /// The version of the last write, of any key.
    version: u32,
    /// All entries that were ever appended to the log, in its order.
    log: Vec<u64>,
    calls: Calls,
}

/// The number of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) gets: u32,
    pub(crate) sets: u32,
    pub(crate) swaps: u32,
}

/// A call that shared data refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shared data refused a call")
    }
}

/// Code that runs before each call.
pub(crate) trait Gate {
    /// Returns whether the call may be made. It is given the call's name and key.
    fn before(&self, call: &str, key: &str) -> Result<(), Refused>;
}

impl<F: Fn(&str, &str) -> Result<(), Refused>> Gate for F {
    fn before(&self, call: &str, key: &str) -> Result<(), Refused> {
        self(call, key)
    }
}

/// Access to shared data through a gate.
pub(crate) struct Gated<G> {
    memory: Memory,
    gate: G,
}

impl Memory {
    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap()
    }

    /// Access through a gate.
    pub(crate) fn behind<G: Gate>(&self, gate: G) -> Gated<G> {
        Gated { memory: self.clone(), gate }
    }

    /// All entries that were ever appended to the log, in its order.
    pub(crate) fn log(&self) -> Vec<u64> {
        self.values().log.clone()
    }

    /// The number of calls since the last time.
    pub(crate) fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.values().calls)
    }

    /// The value whose key ends so.
    pub(crate) fn value(&self, name: &str) -> Option<Vec<u8>> {
        let values = self.values();
        let value = values.values.iter().find(|(key, _)| key.ends_with(name));
        value.map(|(_, value)| value.bytes.clone())
    }

    /// The key that ends so.
    pub(crate) fn key(&self, name: &str) -> String {
        self.values().values.keys().find(|key| key.ends_with(name)).unwrap().clone()
    }
}

impl Values {
    fn write(&mut self, key: &str, value: &[u8]) {
        if key.ends_with("/log") {
            let entries = |value: &[u8]| words(value).skip(1).collect::<Vec<u64>>();
            let older = self.values.get(key).map(|older| older.bytes.clone()).unwrap_or_default();
            let older_length = if older.get(..8) == value.get(..8) { entries(&older).len() } else { 0 };
            self.log.extend(&entries(value)[older_length..]);
        }
        self.version += 1;
        let value = Versioned { bytes: value.to_vec(), version: Some(self.version) };
        self.values.insert(key.to_owned(), value);
    }
}

impl SharedData for Memory {
    type Error = Refused;

    fn get(&self, key: &str) -> Result<Versioned, Refused> {
        let mut values = self.values();
        values.calls.gets += 1;
        Ok(values.values.get(key).cloned().unwrap_or_default())
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), Refused> {
        let mut values = self.values();
        values.calls.sets += 1;
        values.write(key, value);
        Ok(())
    }

    fn compare_and_swap(&self, key: &str, value: &[u8], version: Option<u32>) -> Result<bool, Refused> {
        let mut values = self.values();
        values.calls.swaps += 1;
        let present = values.values.get(key).and_then(|value| value.version);
        let is_same = version.is_none() || version == present;
        if is_same {
            values.write(key, value);
        }
        Ok(is_same)
    }
}

impl<G: Gate> SharedData for Gated<G> {
    type Error = Refused;

    fn get(&self, key: &str) -> Result<Versioned, Refused> {
        self.gate.before("get", key)?;
        self.memory.get(key)
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), Refused> {
        self.gate.before("set", key)?;
        self.memory.set(key, value)
    }

    fn compare_and_swap(&self, key: &str, value: &[u8], version: Option<u32>) -> Result<bool, Refused> {
        self.gate.before("compare_and_swap", key)?;
        self.memory.compare_and_swap(key, value, version)
    }
}
