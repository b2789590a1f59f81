//! One scrape of a model server: the [client] sends the request, [`download`] reads the body, as it is or
//! compressed, into a reader of [metrics](exposition) or of a [list of models](model_list), and the [error]
//! is why it gave no values.
//!
//! The program decides when a server is scraped, and keeps the values.

pub mod client;
pub mod download;
pub mod error;
pub mod exposition;
pub mod model_list;
