//! Model servers, metrics agent and Envoy: started together, stopped together.

mod agent;
mod builder;
mod live;
mod start;

pub use builder::Builder;
pub use live::Stack;
