//! Tables for the terminal and for documents, and where their figures were measured.

mod figures;
mod machine;
pub mod markdown;
pub mod notebook;
mod own_figures;
mod progress;

pub use figures::{median, rounded, with_range};
pub use machine::{Machine, epp_version, load_average};
pub(crate) use own_figures::{OwnFigure, OwnFigureTable};
pub use progress::Progress;
