//! Shipped configurations: the examples, and those to choose from.

mod choosing;
mod examples;
