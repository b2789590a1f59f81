//! Replays recorded requests: fits servers to a record, and runs the product's rules over its requests in
//! simulated time.
//!
//! - [`record`]: requests, read from foreign files. [`fit`]: the servers that a record shows.
//! - [`clients`]: the sessions of a record. [`simulation`]: clients, pickers and servers in simulated time,
//!   which `make simulate` runs too.
//! - [`rules`]: the rules that are compared. [`replay`]: their runs, and [`report`] prints the figures.

pub mod clients;
pub mod fit;
pub mod parallel;
pub mod record;
pub mod replay;
pub mod report;
pub mod rules;
pub mod simulation;
