//! The way to the metrics agent: snapshots come from it, reports go to it.
//!
//! An [`Updater`] knows when a request to the agent is due and takes its response; a [thread](poll_thread) of the module sends it over
//! connections of its own. Snapshots are decoded and compiled there, not by workers. Changes are exchanged with other proxies in the same
//! way, by a [`Sharer`] on a second [thread](share_thread).

mod adoption;
mod connection;
mod credentials;
pub(crate) mod poll_thread;
mod resolver;
pub(crate) mod share_thread;
mod sharer;
mod stop;
mod thread;
mod tls_advice;
mod updater;

pub(crate) use sharer::Sharer;
pub(crate) use thread::Thread;
pub(crate) use updater::Updater;
