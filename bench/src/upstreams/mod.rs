//! Model servers that cost next to nothing.

mod request;
mod server;

pub use request::{PACED, PACED_SHORT};
pub use server::Upstreams;
