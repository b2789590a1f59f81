//! The choice of another picker, which acts.

/// The endpoints that another picker has chosen for a request, as indices in the pool. One that the pool lacks is left out, and with
/// it all destinations behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherPick {
    /// The endpoints that the request may go to, in the order in which they are tried.
    pub destinations: Vec<usize>,
    /// The endpoint that computes the prompt, if it is another one.
    pub prefill: Option<usize>,
    /// The endpoints that encode images, video and audio, if they are others.
    pub encode: Vec<usize>,
}
