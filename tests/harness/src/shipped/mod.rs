//! Shipped parts: the built filter, files and documents.

#[cfg(test)]
mod envoys;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod install_pages;
#[cfg(test)]
mod links;
mod module;
#[cfg(test)]
mod publisher;
pub mod rules;
pub mod snippets;

pub use module::Module;
