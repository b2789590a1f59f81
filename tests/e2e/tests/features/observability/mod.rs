//! Views of operators: statistics, explanations and shadows.

mod explanations;
mod shadow;
mod shadow_mode;
mod statistics;
mod tokens;
mod unfollowed_picks;
