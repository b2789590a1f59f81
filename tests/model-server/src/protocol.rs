//! Names that tests and servers share.

/// The model every server offers.
pub const MODEL: &str = "demo-model";
/// Answer header with the server's name.
pub const SERVED_BY: &str = "x-served-by";
/// Answer header of completions with the model that the server was asked for.
pub const SERVED_MODEL: &str = "x-served-model";

/// A request header whose value becomes the response's `content-encoding`, whatever the body is.
pub const CLAIM_ENCODING: &str = "x-test-claim-encoding";

/// A request header, any number of times, whose value names a header of the response, itself with that value.
pub const CLAIM_HEADER: &str = "x-test-claim-header";

/// A request header that sets the behaviour for its request: `hang`, `reset`, `slow` (10 ms before every
/// chunk), or a status.
pub const BEHAVE: &str = "x-test-behave";
