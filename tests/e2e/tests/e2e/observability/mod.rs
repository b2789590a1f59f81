//! What operators see: statistics, reports, explanations and shadows.

mod explanations;
mod reports;
mod shadow;
mod shadow_mode;
mod statistics;
mod tokens;
mod unfollowed_picks;
