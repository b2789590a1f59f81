//! Why a stream ends before its response is complete.

/// Why a client's stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The response is not a plain stream of events.
    NotEvents,
    /// An event is of an unknown form, or larger than a stream may keep.
    UnreadableEvent,
    /// The server that generates the response again has other output than the client.
    DifferentOutput,
    /// An error, or output that servers do not generate again, such as that of their own tools.
    OtherOutput,
    /// Request and text are larger than a stream may keep, or all streams together.
    TooLarge,
    /// The text is complete, and the usage that the client awaits is lost.
    UsageLost,
    /// It has been resumed as often as is allowed.
    TooManyResumptions,
    /// Two servers have died at the same text, which may be the cause.
    TwoServersDied,
    /// The picker, or the servers that were to continue the response, refused.
    Refused,
    /// The client reads so slowly that too much is held for it.
    SlowClient,
    /// No server has responded.
    NotSent,
}

impl Cut {
    /// The value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotEvents => "not_events",
            Self::UnreadableEvent => "unreadable_event",
            Self::DifferentOutput => "different_output",
            Self::OtherOutput => "other_output",
            Self::TooLarge => "too_large",
            Self::UsageLost => "usage_lost",
            Self::TooManyResumptions => "too_many_resumptions",
            Self::TwoServersDied => "two_servers_died",
            Self::Refused => "refused",
            Self::SlowClient => "slow_client",
            Self::NotSent => "not_sent",
        }
    }

    /// All reasons, in the order of their declaration.
    pub(super) const ALL: [Self; 11] = [
        Self::NotEvents,
        Self::UnreadableEvent,
        Self::DifferentOutput,
        Self::OtherOutput,
        Self::TooLarge,
        Self::UsageLost,
        Self::TooManyResumptions,
        Self::TwoServersDied,
        Self::Refused,
        Self::SlowClient,
        Self::NotSent,
    ];
}
