//! What changes for a user who comes from the EPP, as far as it can be seen: in the flags of the EPP's process, and in the manifests.
//!
//! `docs/reference/differences.md` has all differences, also those that hold for every pool.

mod flags;
mod pool;

use core::fmt;

pub use flags::{Counterpart, EPP_FLAGS, EppFlag, of_flags};
pub use pool::{of_config, of_pool};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The flag, plugin or object.
    pub subject: String,
    /// What is different here, and where there is one, the way to the EPP's behaviour.
    pub text: &'static str,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)
    }
}
