//! Answers that must be taken in time.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::time::Instant;

/// So much is handed over at once; the time is looked at before each piece.
const PIECE: usize = 64 * 1024;

/// The body of an answer that fails when its client has not made room for all of it in time, which ends the connection.
///
/// It fails when the next piece could be sent. That there is room for one now and then is for the limit on writes to see.
#[derive(Debug)]
pub(super) struct DeadlineBody {
    body: Body,
    /// What is left of its last frame.
    rest: Bytes,
    until: Instant,
}

impl DeadlineBody {
    /// The time begins now.
    pub(super) fn new(body: Body, limit: Duration) -> Self {
        Self { body, rest: Bytes::new(), until: Instant::now() + limit }
    }
}

impl HttpBody for DeadlineBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if !self.is_end_stream() && Instant::now() >= self.until {
            let problem = "the client did not take the answer in time (--answer-timeout)";
            return Poll::Ready(Some(Err(problem.into())));
        }
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.rest = data,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
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
    async fn an_answer_that_is_taken_in_time_is_the_same_in_pieces() {
        let bytes: Vec<u8> = (0..=250).cycle().take(PIECE * 2 + 5).collect();
        let mut answer = DeadlineBody::new(bytes.clone().into(), LIMIT);
        let (mut taken, mut sizes) = (Vec::new(), Vec::new());
        while let Some(frame) = answer.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            sizes.push(piece.len());
            taken.extend_from_slice(&piece);
            assert_eq!(answer.size_hint().exact(), Some((bytes.len() - taken.len()) as u64));
        }
        assert_eq!((taken, sizes), (bytes, vec![PIECE, PIECE, 5]));
        assert!(answer.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_fails_and_one_that_was_does_not() {
        let mut late = DeadlineBody::new(vec![0; PIECE + 1].into(), LIMIT);
        let mut taken = DeadlineBody::new(vec![0; PIECE].into(), LIMIT);
        assert!(late.frame().await.unwrap().is_ok() && taken.frame().await.unwrap().is_ok());
        tokio::time::advance(LIMIT).await;
        let error = late.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("--answer-timeout"), "{error}");
        assert!(taken.frame().await.is_none());
    }
}
