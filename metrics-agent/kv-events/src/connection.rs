//! A connection to a ZeroMQ socket of a model server.

use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::share::{HeldBytes, MAX_BYTES, ServerShare};
use super::zmtp::{self, Decoder, ReceivedPart, Socket, ZmtpError};

/// Maximum time to connect, with the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A host that does not respond for three times as long is gone. Otherwise a subscriber, which sends nothing,
/// would not notice.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Time without reading after a command. Publishers send none or few, such as heartbeats, and a flood of them
/// must not take a thread.
const COMMAND_PAUSE: Duration = Duration::from_millis(1);

/// Bytes that are read at once.
const READ: usize = 64 * 1024;

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct EventConnection {
    stream: TcpStream,
    decoder: Decoder,
    held: HeldBytes,
    /// Bytes of the last message, until the next one is received.
    last: usize,
}

/// Why a connection has failed.
#[derive(Debug)]
pub(super) enum Failure {
    Io(io::Error),
    Zmtp(ZmtpError),
    /// There was no handshake, or no complete response, within this time.
    Timeout(Duration),
    /// The connections to the server hold too many bytes.
    TooManyBytes,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Zmtp(error) => error.fmt(f),
            Self::Timeout(limit) => write!(f, "no response within {limit:?}"),
            Self::TooManyBytes => {
                write!(f, "the connections to the server hold more than {MAX_BYTES} bytes together")
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ZmtpError> for Failure {
    fn from(error: ZmtpError) -> Self {
        Self::Zmtp(error)
    }
}

impl EventConnection {
    /// Subscribes to all topics of a publisher.
    pub(super) async fn subscribe(address: SocketAddr, share: &Arc<ServerShare>) -> Result<Self, Failure> {
        let mut connection = Self::open(address, Socket::Sub, share).await?;
        connection.stream.write_all(&zmtp::subscription()).await?;
        Ok(connection)
    }

    /// Sends a request of these frames to a router.
    pub(super) async fn request(
        address: SocketAddr,
        frames: &[&[u8]],
        share: &Arc<ServerShare>,
    ) -> Result<Self, Failure> {
        let mut connection = Self::open(address, Socket::Dealer, share).await?;
        connection.stream.write_all(&zmtp::message(frames)).await?;
        Ok(connection)
    }

    async fn open(address: SocketAddr, socket: Socket, share: &Arc<ServerShare>) -> Result<Self, Failure> {
        let opening = async {
            let stream = TcpStream::connect(address).await?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            let held = HeldBytes::new(Arc::clone(share));
            let mut connection = Self { stream, decoder: Decoder::default(), held, last: 0 };
            connection.stream.write_all(&zmtp::greeting()).await?;
            let ReceivedPart::Greeting = connection.part().await? else {
                return Err(ZmtpError::Handshake.into());
            };
            connection.stream.write_all(&zmtp::ready(socket)).await?;
            let ReceivedPart::Command(ready) = connection.part().await? else {
                return Err(ZmtpError::Handshake.into());
            };
            zmtp::check_ready(socket, &ready)?;
            Ok(connection)
        };
        timeout(CONNECT_TIMEOUT, opening).await.unwrap_or(Err(Failure::Timeout(CONNECT_TIMEOUT)))
    }

    /// The frames of the next message. A receiver that is dropped loses nothing.
    pub(super) async fn receive(&mut self) -> Result<Vec<Bytes>, Failure> {
        self.last = 0;
        loop {
            match self.part().await? {
                ReceivedPart::Message(frames) => {
                    self.last = frames.iter().map(Bytes::len).sum();
                    return Ok(frames);
                }
                ReceivedPart::Command(_) => sleep(COMMAND_PAUSE).await,
                ReceivedPart::Greeting => return Err(ZmtpError::Handshake.into()),
            }
        }
    }

    async fn part(&mut self) -> Result<ReceivedPart, Failure> {
        loop {
            if let Some(part) = self.decoder.next_part()? {
                return Ok(part);
            }
            if !self.held.set(self.decoder.held() + self.last + READ) {
                return Err(Failure::TooManyBytes);
            }
            self.decoder.received.reserve(READ);
            if self.stream.read_buf(&mut self.decoder.received).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
}
