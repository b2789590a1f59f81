//! `metrics-agent explain`, on a running agent.

mod decisions;
mod errors;
mod fixture;
mod shadow;
