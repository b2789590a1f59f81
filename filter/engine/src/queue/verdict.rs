//! What becomes of a request in the queue.

use core::time::Duration;

use endpoint_picker::decision::rejection::{Code, Rejection};
use endpoint_picker::flow_control::{Machine, Outcome, Ticket};

/// What becomes of a request that asks to go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// Flow control is off.
    Open,
    /// It goes on. It is in flight until it [leaves](super::Queue::leave).
    Admitted(Ticket),
    /// It waits until it is resumed.
    Waits(Ticket),
    /// It is answered.
    Refused(Refusal),
}

/// Why a request is resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Admitted,
    /// It is answered.
    Refused(Refusal),
    /// It went on, and is aborted to make room for another one.
    Evicted,
}

/// The answer to a request that does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status, reason and message.
    pub rejection: Rejection,
    /// When the client may come again; `None`: not known.
    pub retry_after: Option<Duration>,
}

/// The answer to a request that does not go on. While the pool has no endpoints, the pace so far is not that of the future, and the client gets
/// no time to come again.
pub(super) fn refusal(
    machine: &mut Machine,
    outcome: Outcome,
    priority: i32,
    now: Duration,
) -> Option<Refusal> {
    let rejection = outcome.rejection()?;
    let is_known = rejection.code == Code::ResourceExhausted;
    let retry_after = is_known.then(|| machine.retry_after(priority, now)).flatten();
    Some(Refusal { rejection, retry_after })
}
