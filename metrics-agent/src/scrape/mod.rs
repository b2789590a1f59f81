//! Scraping: one task for each endpoint polls its metrics and writes them into the endpoint's slot.

pub mod connection;
mod error;
pub mod exposition;
mod leases;
mod metrics;
mod restart;
mod scraper;
pub mod slot;
mod task;
mod turns;

pub use error::{Reason, ScrapeError};
pub use leases::{LeaseMetrics, Leases};
pub use metrics::ScrapeMetrics;
pub use scraper::{ScrapedPool, Scraper};
