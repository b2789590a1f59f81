//! Envoy without `unsafe`: wrappers over [`abi`](crate::abi) for the request and the configuration that a hook is about.
