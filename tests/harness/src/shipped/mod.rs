//! Shipped parts: the built filter, files and documents.

#[cfg(test)]
mod examples;
#[cfg(test)]
mod links;
mod module;
pub mod snippets;

pub use module::Module;
