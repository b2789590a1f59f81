//! Connections of clients, each bounded in size and time.

mod deadline_body;
mod limit;
pub mod listen;
