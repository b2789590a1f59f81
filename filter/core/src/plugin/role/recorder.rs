//! Plugins that learn from where requests are routed.

use core::fmt::Debug;

use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::PREFILL;
use crate::pool::Endpoint;
use crate::request::prompt::BlockHashes;
use crate::state::PluginState;
use crate::state::prefix::PrefixMatch;

/// Remembers where requests went.
pub trait Recorder: Debug + Send + Sync {
    /// The state of a new instance; `None`: with its parameters it has none.
    fn new_state(&self) -> Option<Box<dyn PluginState>>;

    /// Whether [`Routed::rated`] is needed; without a user it is not looked for.
    fn reads_rated(&self) -> bool {
        true
    }

    /// Adds what follows from a routed request.
    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records);
}

/// Names an endpoint to the client in the response's headers.
pub trait ResponseMarker: Debug + Send + Sync {
    /// The profile whose endpoint is named; empty: the endpoint that responds.
    fn profile(&self) -> &str;

    /// The header that names the endpoint.
    fn response_header(&self, endpoint: &Endpoint) -> (String, String);
}

/// A profile that ran for a request.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// The profile's name.
    pub profile: &'a str,
    /// Its choice, best first; empty if the filters left nothing.
    pub picked: &'a [usize],
}

/// Where a request was routed, seen by one plugin.
#[derive(Clone, Copy, Debug)]
pub struct Routed<'a> {
    /// The profiles that ran, in their order.
    pub stages: &'a [Stage<'a>],
    /// The stage that named the destination; it picked at least one endpoint.
    pub primary: &'a Stage<'a>,
    /// The endpoints that the plugin at work last filtered or scored for the request; `None` if no profile
    /// ran it, or the plugin does not [read](Recorder::reads_rated) them.
    pub rated: Option<&'a [usize]>,
    /// The prompt's block hashes, if the plugin at work is a prefix producer and there is a prompt.
    pub hashes: Option<&'a BlockHashes>,
    /// The prompt's matches, if there are hashes.
    pub matches: Option<&'a PrefixMatch>,
}

impl<'a> Routed<'a> {
    /// The endpoints that get the request: the first of the primary profile, then the first of the profile
    /// named `prefill` if it ran and is another one.
    pub fn endpoints(&self) -> impl Iterator<Item = usize> {
        let destination = self.primary.picked.first().copied();
        let prefill = self.stage(PREFILL).and_then(|stage| stage.picked.first().copied());
        destination.into_iter().chain(prefill.filter(|&endpoint| Some(endpoint) != destination))
    }

    /// The stage of this profile; the primary one for an empty name.
    pub fn stage(&self, profile: &str) -> Option<&'a Stage<'a>> {
        if profile.is_empty() {
            return Some(self.primary);
        }
        self.stages.iter().find(|stage| stage.profile == profile)
    }
}
