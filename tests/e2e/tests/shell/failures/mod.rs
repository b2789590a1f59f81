//! Servers and agents that fail, and what it costs.

mod chaos;
mod failure_feedback;
mod unreachable;
