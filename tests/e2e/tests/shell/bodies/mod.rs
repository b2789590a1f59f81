//! Bodies and streams on their way to the servers and back.

mod bad_bodies;
mod bad_input;
mod ext_proc;
mod framing;
mod grpc;
mod large_bodies;
mod paths;
mod rewriting;
mod streams;
