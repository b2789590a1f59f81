//! The live page and what it shows.
//!
//! `/` is static; its scripts ask for `/v1/pools/{pool}` again and again, and once for the [`History`] of the last minutes. All of
//! it comes from this program, and the page may load nothing from elsewhere.

mod assets;
mod data;
mod history;

use std::sync::Arc;

use axum::Router;

pub use history::History;

use crate::server::Shared;

/// The page, its assets and its data.
pub fn routes() -> Router<Arc<Shared>> {
    assets::routes().merge(data::routes())
}
