//! The live page at `/`: static files that are built into the program.
//!
//! Its scripts poll the agent's API. The page may load nothing from elsewhere.

mod assets;

pub(crate) use assets::routes;
