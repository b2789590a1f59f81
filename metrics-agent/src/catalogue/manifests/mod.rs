//! Reads manifests, from texts and from the objects of a cluster, and checks each by itself.

pub(super) mod document;
pub(super) mod fault;
pub(super) mod fields;
mod inference_model;
mod inference_model_rewrite;
mod inference_objective;
mod inference_pool;
mod kinds;
mod list;
pub(super) mod nulls;
pub(super) mod picker;
pub(super) mod scope;
mod text;
