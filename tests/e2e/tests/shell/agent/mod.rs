//! The agent: its life, its security, and the endpoints that it hands over.

mod agent_lifecycle;
mod membership;
mod refused_snapshots;
