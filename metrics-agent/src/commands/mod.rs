//! The subcommand `check`.

pub mod check;
