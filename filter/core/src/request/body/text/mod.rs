//! JSON as text: prompts that are JSON are hashed as the EPP writes them.

pub(super) mod canonical;
mod go_number;
pub(super) mod json_text;
mod members;
