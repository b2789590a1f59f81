//! Which server a request goes to.

mod closed_loop;
mod prefix;
mod subset;
