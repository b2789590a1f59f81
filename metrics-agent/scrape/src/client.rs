//! The connection of a scrape task to one server.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::HeaderValue;
use metrics_agent_catalogue::scraping::{Scheme, ScrapeSettings};
use metrics_agent_support::client::credentials::ClientCredentials;
use metrics_agent_support::client::{Connection, ConnectionError, Get, GetError};
use rustls::pki_types::ServerName;

use super::download::{BodyReader, Download, Downloaded, MAX_TEXT_BYTES, ScrapedServer};
use super::error::{Reason, ScrapeError};

/// A client of one server, which keeps its connection.
pub struct Client {
    credentials: Arc<ClientCredentials>,
    connection: Option<Connection>,
    content_type: Option<HeaderValue>,
    /// Connections refused since the last one that was opened.
    pub refusals: u32,
    /// Attempts to connect to which the server's host has not responded, since the last one to which it has.
    pub unreachable: u32,
    is_connecting: bool,
}

impl Client {
    /// A client without a connection.
    pub fn new(credentials: Arc<ClientCredentials>) -> Self {
        Self {
            credentials,
            connection: None,
            content_type: None,
            refusals: 0,
            unreachable: 0,
            is_connecting: false,
        }
    }

    /// Gets the body at the settings' path, within their limits on size and series, and follows one redirect
    /// to the same server. The caller limits the time.
    pub async fn get(
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
        let mut redirected = None;
        loop {
            reader.start();
            let get = Get {
                path: redirected.as_ref().unwrap_or(&settings.path),
                accept: reader.accept(),
                authorization: authorization.as_deref(),
                max_bytes: MAX_TEXT_BYTES,
            };
            let server = ScrapedServer { scheme: settings.scheme, address };
            let mut download = Download::new(server, reader, redirected.is_none());
            match connection.get(get, &mut download).await {
                Ok(()) => {
                    let Downloaded { redirect, content_type } = download.end()?;
                    self.content_type = content_type;
                    if redirect.is_none() {
                        break;
                    }
                    redirected = redirect;
                    reused = true;
                    continue;
                }
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

    /// The content type of the last body.
    pub fn content_type(&self) -> Option<&HeaderValue> {
        self.content_type.as_ref()
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
    pub fn timed_out(&mut self) {
        if core::mem::take(&mut self.is_connecting) {
            self.unreachable = self.unreachable.saturating_add(1);
        }
    }
}
