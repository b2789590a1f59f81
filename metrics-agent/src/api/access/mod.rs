//! Which clients may use the API.

pub mod check;
pub mod credentials;
pub mod hosts;
