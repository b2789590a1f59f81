//! Policies and manifests at work.

mod manifests;
mod policies;
