//! A client of the API server.
//!
//! kube reads credentials and speaks TLS. Requests, limits and the reading of responses are here, because a
//! response's size depends on objects that anyone in the cluster may write.

#[cfg(not(feature = "kubernetes"))]
mod absent;
mod error;
#[cfg(feature = "kubernetes")]
mod present;

use core::fmt;
use core::time::Duration;

#[cfg(not(feature = "kubernetes"))]
pub use absent::{Client, ResponseBody};
use bytes::{Bytes, BytesMut};
pub(crate) use error::StatusBody;
pub use error::{ApiError, Reason};
use http_body_util::BodyExt;
use hyper::body::Body;
#[cfg(feature = "kubernetes")]
pub use present::{Client, ResponseBody};
use tokio::time::{Instant, timeout_at};

/// Why there is no client: no usable configuration. An API server that cannot be reached is not a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--kubernetes)", self.0)
    }
}

impl core::error::Error for ConnectError {}

/// Maximum number of bytes of one line. The API server stores objects of up to 1.5 MiB, which have more bytes
/// as JSON.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// The lines of a response, each of them an event.
pub struct Lines<B> {
    body: B,
    buffer: BytesMut,
    /// Bytes at the start of the buffer that have no line end.
    searched: usize,
    started: Instant,
    limit: Duration,
}

impl<B: Body<Data = Bytes, Error: fmt::Display> + Unpin> Lines<B> {
    /// The lines of a response that ends at most `limit` after now.
    #[cfg(any(feature = "kubernetes", test))]
    fn new(body: B, limit: Duration) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, started: Instant::now(), limit }
    }

    /// The next line, without its end; `None` at the end of the response. An incomplete last line is dropped.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unsearched) {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(ApiError::TooLarge(MAX_LINE_BYTES));
            }
            match timeout_at(self.started + self.limit, self.body.frame()).await {
                Err(_) => return Err(ApiError::Timeout(self.limit)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(ApiError::Connection(error.to_string())),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::pin::Pin;
    use core::task::{Context, Poll};
    use std::collections::VecDeque;

    use hyper::body::Frame;

    use super::*;

    /// Gives these chunks, and then waits forever or ends.
    struct Chunks {
        chunks: VecDeque<Bytes>,
        ends: bool,
    }

    impl Body for Chunks {
        type Data = Bytes;
        type Error = String;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
            match self.chunks.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    fn lines(chunks: &[&'static str], ends: bool) -> Lines<Chunks> {
        let chunks = chunks.iter().map(|chunk| Bytes::from_static(chunk.as_bytes())).collect();
        Lines::new(Chunks { chunks, ends }, Duration::from_secs(29))
    }

    #[tokio::test]
    async fn lines_may_be_split_anywhere() {
        let mut lines = lines(&["a", "b\nc", "\n\nd\ne", "f"], true);
        for expected in ["ab", "c", "", "d"] {
            assert_eq!(lines.next().await.unwrap().unwrap(), expected);
        }
        assert_eq!(lines.next().await, Ok(None), "the last line is incomplete");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stops_is_an_error_at_its_limit() {
        let started = Instant::now();
        let mut lines = lines(&["a\n", "b"], false);
        assert!(lines.next().await.unwrap().is_some());
        assert_eq!(lines.next().await, Err(ApiError::Timeout(Duration::from_secs(29))));
        assert_eq!(started.elapsed().as_secs(), 29);
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_limited() {
        let chunk = Bytes::from(vec![b'x'; 1024 * 1024]);
        let mut lines = Lines::new(
            Chunks { chunks: core::iter::repeat_n(chunk, 100).collect(), ends: false },
            Duration::from_secs(1),
        );
        assert_eq!(lines.next().await, Err(ApiError::TooLarge(MAX_LINE_BYTES)));
        assert!(lines.body.chunks.len() > 80);
    }
}
