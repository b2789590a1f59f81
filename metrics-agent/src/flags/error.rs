//! Flags that contradict each other.

use core::fmt;

/// Flags that contradict each other.
#[derive(Debug)]
pub struct FlagError(pub(super) String);

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FlagError {}
