//! Responses that clients must read in time.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::time::Instant;

/// Largest part that is sent at once; the deadline is checked before each part.
const MAX_PART: usize = 64 * 1024;

/// A response body that fails when its client has not read all of it in time, which ends the connection.
///
/// The deadline is checked when the next part could be sent. A client that reads nothing at all is the concern of the write timeout.
#[derive(Debug)]
pub(super) struct DeadlineBody {
    body: Body,
    /// The rest of the last frame.
    rest: Bytes,
    deadline: Instant,
}

impl DeadlineBody {
    /// The body must be read within `limit` from now on.
    pub(super) fn new(body: Body, limit: Duration) -> Self {
        Self { body, rest: Bytes::new(), deadline: Instant::now() + limit }
    }
}

impl HttpBody for DeadlineBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if !self.is_end_stream() && Instant::now() >= self.deadline {
            let problem = "the client did not read the response in time (--answer-timeout)";
            return Poll::Ready(Some(Err(problem.into())));
        }
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.rest = data,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => return Poll::Ready(None),
            }
        }
        let part = self.rest.len().min(MAX_PART);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_read_in_time_arrives_in_parts() {
        let bytes: Vec<u8> = (0..=250).cycle().take(MAX_PART * 2 + 5).collect();
        let mut response = DeadlineBody::new(bytes.clone().into(), LIMIT);
        let (mut received, mut sizes) = (Vec::new(), Vec::new());
        while let Some(frame) = response.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            sizes.push(part.len());
            received.extend_from_slice(&part);
            assert_eq!(response.size_hint().exact(), Some((bytes.len() - received.len()) as u64));
        }
        assert_eq!((received, sizes), (bytes, vec![MAX_PART, MAX_PART, 5]));
        assert!(response.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_fails_only_if_a_part_is_left_at_the_deadline() {
        let mut late = DeadlineBody::new(vec![0; MAX_PART + 1].into(), LIMIT);
        let mut complete = DeadlineBody::new(vec![0; MAX_PART].into(), LIMIT);
        assert!(late.frame().await.unwrap().is_ok() && complete.frame().await.unwrap().is_ok());
        tokio::time::advance(LIMIT).await;
        let error = late.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("--answer-timeout"), "{error}");
        assert!(complete.frame().await.is_none());
    }
}
