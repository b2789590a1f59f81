//! End-to-end tests of what both forms of the filter share: which server a request goes to, what is left
//! when servers fail, policies, what operators see, and the shipped configurations. One form is enough for
//! them, `FILTER=native`; `make nightly` runs them with the other too. A test whose effect depends on the
//! form belongs into `shell`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failures;
mod observability;
mod picking;
mod policy;
mod shipped;
