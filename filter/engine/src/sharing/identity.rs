//! The identity of a proxy among those that share changes.

/// Which proxy a sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A number that no other proxy has.
    pub sender: u64,
    /// Grows when another worker of the proxy begins to send; from 1 on.
    pub epoch: u64,
}
