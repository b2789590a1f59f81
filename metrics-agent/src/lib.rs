//! Scrapes model servers and hands the endpoint picker filter one consistent snapshot.
//!
//! Data flows one way, and each stage imports only earlier ones: [`sources`] finds endpoints and reads
//! manifest files, [`catalogue`] makes pools and policies of them, [`scrape`] keeps one task for each
//! endpoint, [`kv_events`] follows the contents of servers' KV caches, [`publish`] gathers the readings of a pool into versioned snapshots, and [`api`] serves these
//! over HTTP. [`extension`] is Envoy Gateway's extension server, which names the pools of routes. [`sharing`] keeps the changes that proxies share, and [`store`] connects agents to one of
//! several agents. [`agent`] puts the stages together; [`commands`] are the programs' other uses, which the
//! running agent does not need.

pub mod agent;
pub mod api;
pub mod commands;
pub mod flags;
pub mod logging;
mod page;
pub mod publish;
pub mod scrape;
pub mod sharing;
pub mod store;
