//! What is shipped works as it is: examples, demo, privileges.

mod demo;
mod examples;
mod privileges;
