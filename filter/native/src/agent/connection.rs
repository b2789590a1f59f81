//! Requests to one of several agents, over HTTP or HTTPS.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{AUTHORITY, AgentRequest, AgentResponse, CONTENT_TYPE, CallError};
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE as CONTENT_TYPE_HEADER, HOST};
use ureq::unversioned::transport::DefaultConnector;

use super::POLL;
use super::credentials::{CredentialFiles, Credentials};
use super::resolver::CachedResolver;
use super::tls_advice::Explained;
use crate::config::{AgentAccess, AgentAddress};
use crate::process::thread::Stop;

/// Maximum bytes of a response. A snapshot of 5 000 endpoints has about one million.
const MAX_RESPONSE: u64 = 16 << 20;

/// Maximum bytes of a response's head.
const MAX_HEAD: usize = 16 << 10;

/// The time to find and reach an agent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections to several equal agents.
pub(super) struct AgentConnection {
    addresses: Vec<AgentAddress>,
    files: CredentialFiles,
    /// `None` until the credentials can be read.
    client: Option<AgentClient>,
    /// Why the credentials cannot be read.
    refusal: Option<String>,
    stop: Arc<Stop>,
}

struct AgentClient {
    http: ureq::Agent,
    authorization: Option<String>,
}

impl AgentConnection {
    /// Connections that `stop` interrupts.
    pub(super) fn new(access: &AgentAccess, stop: Arc<Stop>) -> Self {
        Self {
            addresses: access.addresses.clone(),
            files: CredentialFiles::new(access),
            client: None,
            refusal: None,
            stop,
        }
    }

    /// Sends a request to the agent of this index and waits for the response, for the time that the request
    /// and a poll may take: a longer wait would keep the next poll back.
    pub(super) fn send(
        &mut self,
        agent: usize,
        request: &AgentRequest,
        now: Duration,
    ) -> Result<AgentResponse, CallError> {
        self.read_credentials(now);
        let Self { addresses, client, refusal, .. } = self;
        let Some(client) = client else {
            return Err(CallError::NoResponse(refusal.clone().unwrap_or_default()));
        };
        // There is always one: a configuration without addresses is refused.
        let address = addresses.get(agent).ok_or_else(|| CallError::NoResponse("no address".to_owned()))?;
        client
            .send(&address.url(&request.path), request)
            .map_err(|error| CallError::NoResponse(format!("{address}: {}", Explained(error))))
    }

    /// Takes in the credentials if their files have changed. Unusable files leave the last good credentials
    /// in use.
    fn read_credentials(&mut self, now: Duration) {
        match self.files.changed(now) {
            None => {}
            Some(Ok(credentials)) => {
                if self.client.is_some() {
                    log::info!("the credentials for the agent have changed");
                }
                let client = AgentClient::new(credentials);
                self.stop.interrupts(&client.http);
                self.client = Some(client);
            }
            Some(Err(error)) if self.client.is_some() => {
                log::error!("{error}; the last credentials for the agent stay in use");
            }
            Some(Err(error)) => self.refusal = Some(error.to_string()),
        }
    }
}

impl AgentClient {
    fn new(credentials: Credentials) -> Self {
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .max_response_header_size(MAX_HEAD)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT));
        let config = match credentials.tls {
            Some(tls) => config.tls_config(tls),
            None => config,
        };
        let http =
            ureq::Agent::with_parts(config.build(), DefaultConnector::default(), CachedResolver::default());
        Self { http, authorization: credentials.authorization }
    }

    fn send(&self, url: &str, request: &AgentRequest) -> Result<AgentResponse, ureq::Error> {
        let timeout = Some(request.timeout.min(POLL.timeout));
        let mut response = match &request.body {
            None => self.with_headers(self.http.get(url)).config().timeout_global(timeout).build().call(),
            Some(body) => {
                let post = self.http.post(url).header(CONTENT_TYPE_HEADER, CONTENT_TYPE);
                self.with_headers(post).config().timeout_global(timeout).build().send(body.as_slice())
            }
        }?;
        let body = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_vec()?;
        Ok(AgentResponse { status: response.status().as_u16(), body })
    }

    fn with_headers<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        // Agents refuse unknown hosts. They accept this host whatever the name is by which they are reached.
        let request = request.header(HOST, AUTHORITY);
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        }
    }
}
