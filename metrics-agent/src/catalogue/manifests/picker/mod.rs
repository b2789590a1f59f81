//! `EndpointPickerConfig`: what the filter decides by and what the agent scrapes, from the document.
//!
//! Plugins for the agent and deprecated spellings end here: they do not reach the filter.

mod agent_plugins;
mod data_layer;
mod deprecated;
mod document;
mod findings;
mod flow_control;
mod gates;
mod lower;
mod parameters;
mod paths;
mod plugins;
mod quantity;
mod references;

pub(crate) use data_layer::scraping::Scraping;
pub(crate) use document::EndpointPickerConfig;
pub(crate) use lower::{Lowered, lower};
