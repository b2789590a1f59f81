//! Reading a response: its proof about the server, its output and its token counts. Replacing a model's name
//! in it.

pub mod outcome;
pub mod reader;
pub mod restore;
pub mod usage;
