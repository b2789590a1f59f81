//! Finds the addresses of agents' names.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::Authority;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The time for which a name's addresses are used.
const KEPT: Duration = Duration::from_secs(1);

/// Looks a name up at most once a second.
///
/// ureq asks for the addresses with every request, also if it has a connection, and starts a thread for each
/// lookup with a timeout. Polls come 50 times a second.
#[derive(Debug, Default)]
pub(super) struct CachedResolver {
    lookup: DefaultResolver,
    /// The last lookup, which is for the agent in use.
    last: Mutex<Option<HostLookup>>,
}

#[derive(Debug)]
struct HostLookup {
    authority: Authority,
    at: Instant,
    addresses: ResolvedSocketAddrs,
}

impl Resolver for CachedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let kept =
            last.as_ref().filter(|last| uri.authority() == Some(&last.authority) && last.at.elapsed() < KEPT);
        if let Some(kept) = kept {
            return Ok(kept.addresses.clone());
        }
        let addresses = self.lookup.resolve(uri, config, timeout)?;
        *last = uri.authority().map(|authority| HostLookup {
            authority: authority.clone(),
            at: Instant::now(),
            addresses: addresses.clone(),
        });
        Ok(addresses)
    }
}
