//! The shipped Envoy configurations as tests start them.

mod changes;
mod differences;
mod document;
mod examples;
mod file;
mod listeners;
mod native;
mod picker;

pub use examples::{example, examples};
pub use file::{ACCESS_LOG, Config, EDS_FILE, EDS_FOLDER, LISTENERS_FILE, PICKER, Places};
