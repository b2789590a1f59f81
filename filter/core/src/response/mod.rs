//! What is read of, and replaced in, the answer's body.

pub mod restore;
pub mod usage;
