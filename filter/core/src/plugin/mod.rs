//! Plugins: the parts that a scheduling profile consists of, under the EPP's type names.
//!
//! How to add one: `docs/design/adding-a-scorer.md`.
//!
//! A parameter out of range falls back to its default where the EPP does so, and is refused otherwise.

mod admitter;
mod detector;
mod endpoint_attribute;
mod filter;
mod flow_control;
pub mod parameter;
mod parser;
mod picker;
mod producer;
mod profile_handler;
pub mod registry;
mod reporter;
mod role;
mod scorer;
mod session_affinity;

pub use admitter::*;
pub use detector::*;
pub use filter::*;
pub use flow_control::arrival::*;
pub(crate) use flow_control::fairness::Range as FairnessRange;
pub use flow_control::fairness::*;
pub use flow_control::ordering::*;
pub use flow_control::usage_limit::*;
pub use parameter::deserializer::Parameters;
pub use parser::*;
pub use picker::*;
pub use producer::*;
pub use profile_handler::*;
pub use registry::Instance;
pub use reporter::*;
pub use role::*;
pub use scorer::*;

#[cfg(test)]
pub(crate) mod fixture;
