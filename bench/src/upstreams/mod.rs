//! Model servers that cost next to nothing.

mod request;
mod server;

pub use request::PACED;
pub use server::Upstreams;
