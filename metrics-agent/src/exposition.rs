//! Reading the few wanted values out of a Prometheus text.
//!
//! The text passes through in the chunks it arrives in. A line is looked at once, only lines of wanted metrics are
//! parsed, and nothing is allocated per line. A broken line costs the field it belongs to, never the whole text.

mod collect;
mod lines;
mod reader;
mod sample;
mod wanted;

pub use reader::{Extraction, Fault, Field, Process, Reader, TextLimits};
