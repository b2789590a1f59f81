//! The load generator: requests at times that do not depend on the responses.

use super::request::{FailureKind, RequestSpec};
use std::time::Instant;
use tokio::task::JoinSet;

/// Requests in flight at once. Above it the generator waits for a response, which shows as a lower rate.
const MOST_IN_FLIGHT: usize = 2000;

/// The requests of a load, each at its time.
pub trait Arrivals {
    /// Identifies a request in the record.
    type Tag: Send + 'static;

    /// Waits until the next request is due; `None` ends the load.
    fn next(&mut self) -> impl Future<Output = Option<(Self::Tag, RequestSpec)>> + Send;
}

/// Sends every request in a task of its own, and passes the result of each to `record`: the moment of the
/// first byte of a complete response. Returns when all have ended.
pub async fn send_all<A: Arrivals>(
    mut arrivals: A,
    record: impl Fn(A::Tag, Result<Instant, FailureKind>) + Clone + Send + 'static,
) {
    let mut in_flight = JoinSet::new();
    while let Some((tag, request)) = arrivals.next().await {
        while in_flight.try_join_next().is_some() {}
        if in_flight.len() >= MOST_IN_FLIGHT {
            in_flight.join_next().await;
        }
        let record = record.clone();
        in_flight.spawn(async move {
            let result = request.send().await;
            record(tag, result);
        });
    }
    in_flight.join_all().await;
}
