//! Changes that proxies share, so that several decide as one.
//!
//! Each proxy sends its own changes to the agent and gets those of the others, every 20 ms, in one request of the [`SharingClient`]. It is
//! soft state: no request waits for it, and what does not arrive makes decisions worse, never wrong. So changes are made to be harmless
//! when they are late, doubled or out of order: loads are absolute and numbered, bindings and cold requests have times, and prompts are
//! sets of blocks.
//!
//! A [`PeerLedger`] collects the changes of its own proxy in an [`Outbox`], and applies [`Imported`] ones as those of a sender of their own.

mod client;
mod exporter;
mod importer;
mod outcome;
mod peer;
mod seen;
mod sender;

pub use client::SharingClient;
pub use importer::Imported;
pub use outcome::{SharingError, SyncOutcome};
pub use peer::{LocalPeer, Outbox, OwnChanges, PeerLedger};
pub use sender::{Identity, Positions};
