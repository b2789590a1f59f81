//! Changes that proxies share, so that several decide as one.
//!
//! Every 20 ms, a proxy sends its changes to the agent and gets the changes of other proxies, in one request
//! of the [`SharingClient`]. Shared changes are soft state: no request waits for them, and a change that does
//! not arrive makes decisions worse, never wrong. Changes are harmless when they are late, repeated or out of
//! order: loads are absolute and numbered, bindings and cold requests have times, and prompts are sets of
//! blocks.
//!
//! A [`PeerLedger`] collects the changes of its own proxy in an [`Outbox`], and applies [`Imported`] changes
//! as changes of their own sender.

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
