//! End-to-end tests that do not depend on the filter's form: the shipped files and deployments, Envoy without
//! the picker, the agent's page, and the scripts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deployments;
mod doctor;
mod page;
mod setup_script;
mod shipped_config;
mod shipped_listeners;
mod shipped_settings;
mod without_picker;
