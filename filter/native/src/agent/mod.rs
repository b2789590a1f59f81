//! The way to the metrics agent: snapshots come from it, reports go to it.
//!
//! An [`Updater`] knows when a request to the agent is due and takes its answer. It sends nothing itself: either a
//! [thread](poll_thread) of the module does so over connections of its own, or Envoy does over a cluster, through [`Callouts`]. Both
//! run beside the workers, and snapshots are decoded and compiled there. Changes are exchanged with other proxies in the same two ways, by
//! a [`Sharer`] on a [thread](share_thread) of its own or through the same callouts.

mod adoption;
mod callouts;
mod connection;
mod credentials;
pub(crate) mod poll_thread;
mod resolver;
pub(crate) mod share_thread;
mod sharer;
mod stop;
mod thread;
pub(crate) mod ticker;
mod tls_advice;
mod updater;

pub(crate) use callouts::Callouts;
pub(crate) use sharer::Sharer;
pub(crate) use thread::Thread;
pub(crate) use updater::Updater;
