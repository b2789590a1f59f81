//! Scraping: one task for each endpoint polls its metrics and writes them into the endpoint's slot.

mod connection;
pub mod credentials;
mod error;
pub mod exposition;
mod head_limit;
mod job;
mod metrics;
mod restart;
mod scraper;
pub mod slot;
mod task;
mod turns;

pub use error::{Reason, ScrapeError};
pub use metrics::ScrapeMetrics;
pub use scraper::{ScrapedPool, Scraper};
