//! A limit on the bytes that a server sends before the head of its response is complete.
//!
//! HTTP allows any number of interim responses (`100 Continue`) before the final one. hyper reads them in one
//! go while they arrive, which would delay every other endpoint.

use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, ready};
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// No limit.
const UNLIMITED: usize = usize::MAX;

/// Bytes that may still be read before the head is complete. Clones, one of them in the stream, share the
/// number.
#[derive(Clone, Debug)]
pub(super) struct HeadLimit(Arc<AtomicUsize>);

impl HeadLimit {
    /// No limit until [`Self::start`].
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(UNLIMITED)))
    }

    /// Expects a head: reading fails after `max_bytes` bytes without [`Self::stop`].
    pub(super) fn start(&self, max_bytes: usize) {
        self.0.store(max_bytes, Ordering::Relaxed);
    }

    /// Ends the limit, because the head is complete.
    pub(super) fn stop(&self) {
        self.0.store(UNLIMITED, Ordering::Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn count(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed);
        if left != UNLIMITED {
            self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
        }
    }
}

/// A stream whose reads fail beyond the limit.
pub(super) struct LimitedStream<S> {
    stream: S,
    limit: HeadLimit,
}

impl<S> LimitedStream<S> {
    pub(super) fn new(stream: S, limit: HeadLimit) -> Self {
        Self { stream, limit }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.limit.is_reached() {
            return Poll::Ready(Err(io::Error::other("the head of the response is too long")));
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.limit.count(buffer.filled().len() - before);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn reading_fails_once_the_limit_is_reached_and_no_head_was_complete() {
        let limit = HeadLimit::new();
        let mut stream = LimitedStream::new(&[0_u8; 100][..], limit.clone());
        let mut piece = [0; 10];
        stream.read_exact(&mut piece).await.unwrap();
        limit.start(20);
        stream.read_exact(&mut piece).await.unwrap();
        assert!(!limit.is_reached());
        limit.stop();
        stream.read_exact(&mut [0; 30]).await.unwrap();
        limit.start(15);
        stream.read_exact(&mut piece).await.unwrap();
        stream.read_exact(&mut piece).await.unwrap();
        assert!(limit.is_reached());
        assert!(stream.read(&mut piece).await.is_err());
        limit.start(15);
        assert_eq!(stream.read(&mut piece).await.unwrap(), 10);
    }
}
