//! The events by which other threads wake a request.

/// Why a request is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The queue has resumed it.
    Resumed,
    /// The server of the module's own request had done nothing for too long, since this number of its events.
    Stalled { events: u32 },
}

impl From<Wake> for u64 {
    /// The number that Envoy passes on.
    fn from(wake: Wake) -> Self {
        match wake {
            Wake::Resumed => 0,
            Wake::Stalled { events } => Self::from(events) + 1,
        }
    }
}

impl From<u64> for Wake {
    fn from(event: u64) -> Self {
        event.checked_sub(1).map_or(Self::Resumed, |events| {
            let events = u32::try_from(events).unwrap_or(u32::MAX);
            Self::Stalled { events }
        })
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        for wake in [Wake::Resumed, Wake::Stalled { events: 0 }, Wake::Stalled { events: u32::MAX }] {
            assert_eq!(Wake::from(u64::from(wake)), wake);
        }
    }
}
