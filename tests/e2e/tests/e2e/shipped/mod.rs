//! What is shipped works as it is: configurations, examples, demo, scripts.

mod demo;
mod examples;
mod harness;
mod privileges;
mod setup_script;
mod shipped_config;
mod shipped_listeners;
