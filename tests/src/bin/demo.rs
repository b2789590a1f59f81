//! `make run`.
fn main() {}
