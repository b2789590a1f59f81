//! What operators see: statistics, reports, explanations, shadows, and the page.

mod explanations;
mod page;
mod reports;
mod shadow;
mod statistics;
mod tokens;
