//! The picker compared with the EPP and with round robin: Envoy alone with round robin, both forms of our
//! filter with its agent, and the EPP over `ext_proc`.
//!
//! All run in the same Envoy binary with the shipped configuration around them, in front of the same model
//! servers and under the same load, one at a time: an idle picker takes processor time too, and must not
//! disturb the measured one. Each round begins with another one; figures are medians over the rounds.

pub(crate) mod cost;
pub(crate) mod cost_cells;
pub(crate) mod cost_report;
pub(crate) mod quality;
pub(crate) mod quality_report;
pub(crate) mod rules;
pub(crate) mod running;
pub(crate) mod variant;
