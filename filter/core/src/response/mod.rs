//! Reading token counts of a response's body, and replacing a model's name in it.

pub mod restore;
pub mod usage;
