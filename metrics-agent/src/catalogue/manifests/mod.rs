//! Reads the documents of the manifest files and checks each by itself.

pub(super) mod document;
pub(super) mod fault;
pub(super) mod fields;
mod inference_model;
mod inference_model_rewrite;
mod inference_objective;
mod inference_pool;
mod kinds;
mod list;
mod nulls;
pub(super) mod picker;
