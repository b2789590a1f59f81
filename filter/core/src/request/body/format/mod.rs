//! What each API reads of its bodies.

pub(super) mod anthropic;
pub(super) mod chat;
pub(super) mod completions;
pub(super) mod generate;
mod given;
pub(super) mod invocations;
pub(super) mod items;
mod messages;
pub(super) mod model_only;
