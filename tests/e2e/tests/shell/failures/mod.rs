//! Servers and agents that fail, and what it costs.

mod chaos;
mod degradation;
mod failure_feedback;
mod refusals;
mod unreachable;
