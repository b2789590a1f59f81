//! Model servers that cost next to nothing.

mod request;
mod server;

pub(crate) use request::PACED;
pub(crate) use server::Upstreams;
