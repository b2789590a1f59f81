//! The agent from outside: captured and hostile metrics texts, real sockets, the real binary.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod agreement;
mod authority;
mod batches;
mod cached_prefixes;
mod changes;
mod costly_servers;
mod doctor;
mod engine_lines;
mod engine_table;
mod explain_command;
mod extension;
mod flags;
mod golden;
mod harness;
mod hostile;
mod kv_events;
mod limits;
mod logs;
mod migration;
mod name_server;
mod names;
mod observability;
mod process;
mod records;
mod refused_files;
mod reload;
mod reports;
mod responses;
mod restarts;
mod rights;
mod scraping;
mod scripted;
mod secured_api;
mod secured_scraping;
mod snapshot_command;
mod snapshots;
mod store;
mod strangers;
mod tls_advice;
mod unseen_queue;
mod unwritable_output;
