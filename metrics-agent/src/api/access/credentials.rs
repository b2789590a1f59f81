//! Credentials of the API: the agent's certificate, and the certificates and tokens that clients need.

use std::path::PathBuf;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use metrics_agent_support::credentials::{self, CredentialError, File, Tokens, Watched, Watching};

/// The files with the API's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The file with the tokens that may read and write, one on each line.
    pub tokens: Option<PathBuf>,
    /// The file with the tokens that may only read.
    pub read_tokens: Option<PathBuf>,
    /// Rights of clients without credentials.
    pub unauthenticated: Unauthenticated,
}

/// Rights of clients without a certificate and a token. Clients on the agent's own host may also write where
/// neither is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unauthenticated {
    /// Whether they may read, although writing takes credentials.
    pub reads: bool,
    /// Whether clients on other hosts may write.
    pub writes: bool,
}

/// The files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The agent's certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// The authorities of clients' certificates, in PEM; `Some`: clients need a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// The current credentials.
#[derive(Debug)]
pub struct ApiCredentials {
    /// `None`: plain HTTP.
    pub tls: Option<Watched<ServerConfig>>,
    /// Certificates and tokens that clients need.
    pub clients: ClientRequirements,
}

/// The certificates and tokens that clients need.
#[derive(Debug, Default)]
pub struct ClientRequirements {
    /// Whether clients need a certificate. A wrong one ends the handshake; without one the request is
    /// refused.
    pub certificate: bool,
    /// The tokens that may read and write; `None`: no request needs a token.
    pub tokens: Option<Watched<Tokens>>,
    /// The tokens that may only read.
    pub read_tokens: Option<Watched<Tokens>>,
    /// Rights of clients without a certificate and a token.
    pub unauthenticated: Unauthenticated,
}

impl Files {
    /// Reads the files now, and again whenever they change.
    pub(crate) async fn watch(self, watching: Watching<'_>) -> Result<ApiCredentials, CredentialError> {
        let watching = Some(watching);
        let certificate = self.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        let tls = match self.tls {
            Some(TlsFiles { certificate, key, client_authorities }) => {
                let files = [certificate, key].into_iter().chain(client_authorities).collect();
                Some(Watched::read(files, watching, config).await?)
            }
            None => None,
        };
        let tokens = async |file: Option<PathBuf>| match file {
            Some(file) => {
                Watched::read(vec![file], watching, |files| Tokens::read(&files[0])).await.map(Some)
            }
            None => Ok(None),
        };
        let clients = ClientRequirements {
            certificate,
            tokens: tokens(self.tokens).await?,
            read_tokens: tokens(self.read_tokens).await?,
            unauthenticated: self.unauthenticated,
        };
        Ok(ApiCredentials { tls, clients })
    }
}

/// `files` are the certificate, its key, and the authorities of clients if clients need certificates.
fn config(files: &[File]) -> Result<ServerConfig, CredentialError> {
    let refuse = |error: &dyn core::fmt::Display| CredentialError::new(&files[0].0, error.to_string());
    let (certificate, key) = (credentials::certificates(&files[0])?, credentials::key(&files[1])?);
    let builder = ServerConfig::builder_with_provider(credentials::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(&error))?;
    let builder = match files.get(2) {
        Some(authorities) => {
            // Health checks come without a certificate, so the handshake must not require one: the path is
            // not known yet.
            let verifier = WebPkiClientVerifier::builder_with_provider(
                credentials::roots(authorities)?.into(),
                credentials::provider(),
            )
            .allow_unauthenticated()
            .build()
            .map_err(|error| CredentialError::new(&authorities.0, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(certificate, key)
        .map_err(|error| refuse(&format!("and {} do not match: {error}", files[1].0.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
