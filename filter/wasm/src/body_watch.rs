//! Detects an Envoy that keeps bodies from the filter.
//!
//! The filter pauses at a request's headers until it has read the body. Without
//! `allow_on_headers_stop_iteration: true` in the wasm configuration Envoy then passes no chunk of the body
//! on, and the request would hang. Envoy's count of received bytes tells this from a client that has not sent
//! its body yet: it grows beyond the bytes of the head.

use std::collections::BTreeMap;

use crate::host;

/// Ticks between two checks of a held request without a chunk of its body: a second.
const PATIENCE: u32 = 50;

/// The requests that are held at their headers, until the first chunk of a body shows that Envoy passes
/// bodies on.
#[derive(Debug, Default)]
pub(crate) struct BodyWatch {
    bodies: Bodies,
    held: BTreeMap<u32, HeldBody>,
}

/// Whether Envoy withholds bodies, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Bodies {
    #[default]
    Unknown,
    Arrive,
    Withheld,
}

#[derive(Clone, Copy, Debug)]
struct HeldBody {
    ticks: u32,
    /// Bytes of the request that had arrived with its head.
    bytes: u64,
}

impl BodyWatch {
    /// The request of the callback at hand, which has this context, is held at its headers and has a body.
    pub(crate) fn hold(&mut self, context: u32) {
        if self.bodies == Bodies::Unknown
            && let Some(bytes) = host::received_bytes()
        {
            self.held.insert(context, HeldBody { ticks: 0, bytes });
        }
    }

    /// Whether the body of a request that is held at its headers never arrives.
    pub(crate) fn is_withheld(&self) -> bool {
        self.bodies == Bodies::Withheld
    }

    /// A chunk of a held request's body has arrived.
    pub(crate) fn chunk(&mut self) {
        if self.bodies == Bodies::Unknown {
            self.bodies = Bodies::Arrive;
            self.held.clear();
        }
    }

    /// The request of this context is over.
    pub(crate) fn end(&mut self, context: u32) {
        self.held.remove(&context);
    }

    /// Takes the held requests whose bodies have arrived at Envoy and not at the filter, by their contexts.
    pub(crate) fn tick(&mut self) -> Vec<u32> {
        let mut stuck = Vec::new();
        for (&context, held) in &mut self.held {
            held.ticks += 1;
            if held.ticks.is_multiple_of(PATIENCE)
                && host::use_context(context)
                && host::received_bytes().is_some_and(|bytes| bytes > held.bytes)
            {
                stuck.push(context);
            }
        }
        if !stuck.is_empty() && self.bodies == Bodies::Unknown {
            self.bodies = Bodies::Withheld;
            log::error!(
                "Envoy keeps the bodies of requests from the picker: the wasm filter's config needs allow_on_headers_stop_iteration: true. \
                 Until then the failure mode decides about requests with a body"
            );
        }
        for context in &stuck {
            self.held.remove(context);
        }
        stuck
    }
}
