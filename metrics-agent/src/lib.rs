//! Scrapes model servers and hands the endpoint picker filter one consistent snapshot: the program, above the
//! crates of its folder.
//!
//! Data flows one way, and each stage uses only earlier ones: [`metrics_agent_sources`] finds endpoints and
//! reads manifest files, [`metrics_agent_catalogue`] makes pools and policies of them, [`scrape`] keeps one
//! task for each endpoint, [`metrics_agent_kv_events`] follows the contents of servers' KV caches,
//! [`publish`] gathers the readings of a pool into versioned snapshots, and [`api`] serves these over HTTP.
//! [`metrics_agent_gateway`] is Envoy Gateway's extension server, which names the pools of routes.
//! [`sharing`] keeps the changes that proxies share, [`record`] writes the requests that they record, and
//! [`store`] connects agents to one of several agents.
//! [`agent`] puts the stages together. The other uses of the program, [`metrics_agent_check`],
//! [`metrics_agent_doctor`] and [`metrics_agent_replay`], need none of these.

pub mod agent;
pub mod api;
pub mod flags;
pub mod logging;
mod page;
pub mod publish;
pub mod record;
pub mod replay;
pub mod scrape;
pub mod sharing;
pub mod store;
