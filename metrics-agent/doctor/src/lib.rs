//! The commands of the agent that read a running agent or Envoy over HTTP: [`doctor`] names the mistakes of
//! both, [`explain`] makes a decision again, and `snapshot` prints a pool. They read
//! [an agent](agent_client), or its [recorded] responses.
//!
//! Nothing here watches a cluster or scrapes a server.

pub mod agent_client;
pub mod doctor;
pub mod explain;
pub mod fetch;
pub mod recorded;
