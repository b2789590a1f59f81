//! Reading a response: its proof about the server, and the token counts in its body. Replacing a model's name in it.

pub mod outcome;
pub mod restore;
pub mod usage;
