//! Which server a request goes to.

mod closed_loop;
mod outcomes;
mod prefix;
mod subset;
