//! Tables for the terminal and for documents, and where their figures were measured.

pub(crate) mod chart;
pub(crate) mod document;
mod figures;
mod machine;
pub(crate) mod markdown;
mod own_figures;
mod progress;

pub(crate) use figures::{median, rounded};
pub(crate) use machine::{Machine, epp_version, load_average};
pub(crate) use own_figures::{OwnFigure, OwnFigureTable};
pub(crate) use progress::Progress;
