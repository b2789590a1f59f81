//! What a configuration is written in.

pub(crate) mod duration;
