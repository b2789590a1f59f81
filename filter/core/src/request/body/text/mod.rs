//! JSON as text: prompts that are JSON are hashed as the EPP writes them.

pub(super) mod canonical;
pub(super) mod json_text;
mod members;
