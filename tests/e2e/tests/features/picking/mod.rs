//! Which server a request goes to.

mod closed_loop;
mod conversations;
mod outcomes;
mod prefix;
mod subset;
