//! Which server a request goes to, and that clients cannot choose it.

mod best_server;
mod closed_loop;
mod control_headers;
mod prefix;
mod subset;
