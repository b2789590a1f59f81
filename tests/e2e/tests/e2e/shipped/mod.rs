//! What is shipped works as it is: examples, demo, privileges.

mod choosing;
mod demo;
mod examples;
mod privileges;
