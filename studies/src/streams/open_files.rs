//! The limit of open files, which bounds the connections of Envoy and of the servers in this process.

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process, and of all that it starts, as far as it may without privileges. Returns
/// it.
pub(super) fn raise_limit() -> Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.and_then(|maximum| usize::try_from(maximum).ok()).unwrap_or(usize::MAX))
}
