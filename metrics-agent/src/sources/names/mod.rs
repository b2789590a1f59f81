//! Model servers under a host name: resolved by DNS again and again, with an endpoint for each address.

mod follow;
mod host;
mod resolver;
mod servers;
mod table;

pub(super) use follow::Follower;
pub use host::HostName;
pub use resolver::Resolver;
pub use servers::{NamedServer, Unresolved};

/// Maximum number of different host names.
pub(super) const MAX_NAMES: usize = 1024;
