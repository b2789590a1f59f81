//! What is shipped: the built filter, files and documents.

mod module;
pub mod snippets;

pub use module::Module;
