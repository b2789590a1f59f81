//! The whole agent: discover, scrape, publish, serve, and end in order.

mod acceptance;
mod error;
mod listeners;
mod metrics;
mod plans;
mod pool_pods;
mod reconciler;
mod run;
mod settings;

pub use error::AgentError;
pub use listeners::Listeners;
pub use run::run;
pub use settings::Settings;
