//! Outcomes of a sync.

use core::fmt;

use endpoint_picker_wire::{CHANGES_FORMAT, DecodeError};

use crate::agent::CallError;

/// The outcome of a sync.
#[derive(Clone, Debug, PartialEq)]
pub enum SyncOutcome {
    /// Changes were exchanged, as far as there were any.
    Synced {
        /// Why a message was passed over (the first if there are several), if that reason did not occur
        /// lately.
        passed_over: Option<String>,
    },
    /// The agent does not share.
    Off,
    /// The sync failed.
    Failed {
        /// The reason.
        error: SharingError,
        /// Whether it did not occur lately.
        is_new: bool,
    },
}

/// Why a sync failed.
#[derive(Clone, Debug, PartialEq)]
pub enum SharingError {
    /// The agent sent no response, or the proxy refused a call.
    Call(CallError),
    /// The agent responded with another status than 200 and 404.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// The response is not a feed.
    Malformed(DecodeError),
    /// The response has a format that this build does not read.
    Format(u32),
}

impl fmt::Display for SharingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Status { status, body } => write!(f, "the agent answered {status}: {body:?}"),
            Self::Malformed(error) => write!(f, "the agent's feed of changes is malformed: {error}"),
            Self::Format(found) => write!(
                f,
                "the agent's feed of changes has format {found}, this filter reads format {CHANGES_FORMAT}: update the older side"
            ),
        }
    }
}

impl core::error::Error for SharingError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Malformed(error) => Some(error),
            Self::Status { .. } | Self::Format(_) => None,
        }
    }
}
