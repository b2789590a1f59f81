//! Reads the metrics of a dialect out of a Prometheus text.
//!
//! The text passes through in the chunks in which it arrives. Each line is read once, only lines of metrics in the dialect are
//! parsed, and no line allocates. A malformed line costs the field it belongs to, never the whole text.

mod collect;
mod extraction;
mod extractor;
mod field_series;
mod lines;
mod reader;
mod sample;

pub use extraction::{Extraction, Fault, Field, Process};
pub use reader::Reader;
