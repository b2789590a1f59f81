//! Certificates, keys and tokens, from files that are read again when they change.
//!
//! Their content reaches no log and no message: an error names the file and the problem, never its text.

mod error;
pub(crate) mod files;
pub(crate) mod pem;
pub(crate) mod tls_fault;
mod token;
mod watched;

pub use error::CredentialError;
pub use token::Tokens;
pub use watched::Watched;
