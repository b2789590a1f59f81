//! Tables for the terminal and for documents, and where their figures were measured.

pub(crate) mod document;
mod figures;
mod machine;
pub(crate) mod markdown;
mod progress;
pub(crate) mod table;

pub(crate) use figures::{median, rounded};
pub(crate) use machine::{Machine, envoy_version, load_average};
pub(crate) use progress::Progress;
