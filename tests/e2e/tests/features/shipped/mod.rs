//! Shipped configurations: the examples, and those to choose from.

mod choosing;
mod examples;
mod traffic_to_rules;
