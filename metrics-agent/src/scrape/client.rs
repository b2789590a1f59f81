//! The connection of a scrape task to one server.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use rustls::pki_types::ServerName;

use super::error::{Reason, ScrapeError};
use super::exposition::{LineReader, TextReader};
use crate::catalogue::scraping::{Scheme, ScrapeSettings};
use crate::client::credentials::ClientCredentials;
use crate::client::{Connection, ConnectionError, Get, GetError};

const PROMETHEUS_TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Reads the body of a response in the chunks in which it arrives.
pub(crate) trait BodyReader {
    /// Content types that it reads.
    fn accept(&self) -> HeaderValue {
        PROMETHEUS_TEXT
    }

    /// Starts a new body, and forgets the last one.
    fn start(&mut self);

    /// Reads the next chunk.
    fn feed(&mut self, chunk: &[u8]);

    /// Series of the body so far.
    fn series(&self) -> usize;
}

impl<L: LineReader> BodyReader for TextReader<L> {
    fn start(&mut self) {
        self.start();
    }

    fn feed(&mut self, chunk: &[u8]) {
        self.feed(chunk);
    }

    fn series(&self) -> usize {
        self.series()
    }
}

/// A client of one server, which keeps its connection.
pub(crate) struct Client {
    credentials: Arc<ClientCredentials>,
    connection: Option<Connection>,
    /// Connections refused since the last one that was opened.
    pub(super) refusals: u32,
    /// Attempts to connect to which the server's host has not responded, since the last one to which it has.
    pub(super) unreachable: u32,
    is_connecting: bool,
}

impl Client {
    pub(crate) fn new(credentials: Arc<ClientCredentials>) -> Self {
        Self { credentials, connection: None, refusals: 0, unreachable: 0, is_connecting: false }
    }

    /// Gets the body at the settings' path, within their limits on size and series. The caller limits the time.
    pub(crate) async fn get(
        &mut self,
        address: SocketAddr,
        settings: &ScrapeSettings,
        reader: &mut impl BodyReader,
    ) -> Result<(), ScrapeError> {
        let mut reused = self.connection.is_some();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(address, settings.scheme).await?,
        };
        let authorization = self.credentials.authorization();
        loop {
            reader.start();
            let get = Get {
                path: &settings.path,
                accept: reader.accept(),
                authorization: authorization.as_deref(),
                max_bytes: settings.max_bytes,
            };
            let head =
                |status| if status == StatusCode::OK { Ok(()) } else { Err(ScrapeError::Status(status)) };
            let read = |chunk: &[u8]| {
                reader.feed(chunk);
                let is_within_limit = reader.series() <= settings.max_series;
                if is_within_limit { Ok(()) } else { Err(ScrapeError::TooManySeries(settings.max_series)) }
            };
            match connection.get(get, head, read).await {
                Ok(()) => break,
                // The server has closed the idle connection, which is not a failure.
                Err(GetError::BeforeResponse(_)) if reused => {
                    connection = self.connect(address, settings.scheme).await?;
                }
                Err(GetError::BeforeResponse(error)) => {
                    let error = ScrapeError::Connection(ConnectionError::Http(error));
                    return Err(error.with_scheme(settings.scheme));
                }
                Err(GetError::Response(error @ ScrapeError::Status(_))) => {
                    return Err(error.with_scheme(settings.scheme));
                }
                Err(GetError::Response(error)) => return Err(error),
            }
            reused = false;
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&mut self, address: SocketAddr, scheme: Scheme) -> Result<Connection, ScrapeError> {
        let tls = match scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let tls = self.credentials.tls(ServerName::IpAddress(address.ip().into()));
                Some(tls.expect("plans with https are refused without TLS credentials"))
            }
        };
        self.is_connecting = true;
        let opened = Connection::open(address, &address.to_string(), tls).await.map_err(ScrapeError::from);
        self.is_connecting = false;
        match opened.as_ref().map_err(ScrapeError::reason) {
            // A handshake that fails shows that the server accepts connections.
            Ok(_) | Err(Reason::Tls) => (self.refusals, self.unreachable) = (0, 0),
            Err(Reason::Refused) => {
                self.refusals = self.refusals.saturating_add(1);
                self.unreachable = 0;
            }
            Err(Reason::Unreachable) => self.unreachable = self.unreachable.saturating_add(1),
            Err(_) => {}
        }
        opened
    }

    /// The caller's limit on time has ended the last request.
    pub(super) fn timed_out(&mut self) {
        if core::mem::take(&mut self.is_connecting) {
            self.unreachable = self.unreachable.saturating_add(1);
        }
    }
}
