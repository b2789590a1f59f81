//! Credentials for servers, read from files.

use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::credentials::{self, CredentialError, File, Tokens, Watched, Watching};

/// The files with credentials for a server, or for many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The trusted certificates; `None`: no TLS.
    pub trust: Option<Trust>,
    /// The client's certificate chain and its key, in PEM.
    pub certificate_and_key: Option<(PathBuf, PathBuf)>,
    /// The name in servers' certificates; `None`: the host that the client connects to.
    pub server_name: Option<ServerName<'static>>,
    /// The file with the token, on its first line.
    pub token: Option<PathBuf>,
}

/// The trusted servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Servers with a certificate of one of the authorities in this file.
    Authorities(PathBuf),
    /// Every server.
    All,
}

/// The current credentials; none by default.
#[derive(Debug, Default)]
pub struct ClientCredentials {
    /// `None`: no TLS.
    tls: Option<Watched<ClientConfig>>,
    /// As in [`ClientFiles::server_name`].
    server_name: Option<ServerName<'static>>,
    /// The value of the `authorization` header.
    authorization: Option<Watched<HeaderValue>>,
}

/// TLS of one connection.
pub struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server_name: ServerName<'static>,
}

impl ClientFiles {
    /// Reads the files now; with `watching`, again whenever they change.
    pub async fn read(self, watching: Option<Watching<'_>>) -> Result<ClientCredentials, CredentialError> {
        let Self { trust, certificate_and_key, server_name, token } = self;
        let tls = match trust {
            Some(trust) => {
                let own = certificate_and_key.into_iter().flat_map(|(certificate, key)| [certificate, key]);
                let (authorities, trusts_all) = match trust {
                    Trust::Authorities(authorities) => (Some(authorities), false),
                    Trust::All => (None, true),
                };
                let files = authorities.into_iter().chain(own).collect();
                Some(Watched::read(files, watching, move |files| config(trusts_all, files)).await?)
            }
            None => None,
        };
        let authorization = match token {
            Some(file) => {
                let header = |files: &[File]| Ok(Tokens::read(&files[0])?.header());
                Some(Watched::read(vec![file], watching, header).await?)
            }
            None => None,
        };
        Ok(ClientCredentials { tls, server_name, authorization })
    }
}

impl ClientCredentials {
    /// Whether connections can have TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// TLS of a connection to `host`; `None` without TLS.
    pub fn tls(&self, host: ServerName<'static>) -> Option<Tls> {
        let config = self.tls.as_ref()?.now();
        Some(Tls { config, server_name: self.server_name.clone().unwrap_or(host) })
    }

    /// The `authorization` header of requests; `None` without a token.
    pub fn authorization(&self) -> Option<Arc<HeaderValue>> {
        self.authorization.as_ref().map(Watched::now)
    }
}

/// `files` are the authorities, unless every server is trusted, then the agent's certificate and its key, if
/// it has one.
fn config(trusts_all: bool, files: &[File]) -> Result<ClientConfig, CredentialError> {
    let builder = ClientConfig::builder_with_provider(credentials::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions");
    let (builder, own) = match files {
        [authorities, own @ ..] if !trusts_all => {
            (builder.with_root_certificates(credentials::roots(authorities)?), own)
        }
        own => {
            let verifier = TrustAll(credentials::provider());
            (builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)), own)
        }
    };
    let [certificate, key] = own else { return Ok(builder.with_no_client_auth()) };
    builder.with_client_auth_cert(credentials::certificates(certificate)?, credentials::key(key)?).map_err(
        |error| {
            let problem = format!("and {} do not match: {error}", key.0.display());
            CredentialError::new(&certificate.0, problem)
        },
    )
}

/// Accepts every certificate of a server that has its key.
#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
