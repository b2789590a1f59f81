//! What the agent shows to model servers, and asks of them.

use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::credentials::files::File;
use crate::credentials::{CredentialError, Tokens, Watched, pem};
use crate::files::FileLimits;
use crate::tasks::Tasks;
use crate::telemetry::ResultCounter;

/// Where the credentials for model servers are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Whose certificates are trusted; `None`: TLS is not spoken.
    pub trust: Option<Trust>,
    /// The own certificate chain and its key, in PEM.
    pub certificate_and_key: Option<(PathBuf, PathBuf)>,
    /// The name that servers' certificates must carry; `None`: their IP address.
    pub server_name: Option<ServerName<'static>>,
    /// The token to show, on the first line.
    pub token: Option<PathBuf>,
}

/// Which model servers are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those whose certificate is by one of the authorities in this file.
    Authorities(PathBuf),
    /// Every one.
    Anyone,
}

/// The credentials as they are now.
#[derive(Debug, Default)]
pub struct Credentials {
    /// `None`: TLS is not spoken.
    pub tls: Option<Watched<ClientConfig>>,
    /// As in [`Files::server_name`].
    pub server_name: Option<ServerName<'static>>,
    /// The value of the `authorization` header.
    pub authorization: Option<Watched<HeaderValue>>,
}

impl Files {
    /// Reads them, and follows them from then on.
    pub async fn follow(
        self,
        limits: FileLimits,
        tasks: &Tasks,
        reads: &ResultCounter,
    ) -> Result<Credentials, CredentialError> {
        let Self { trust, certificate_and_key, server_name, token } = self;
        let tls = match trust {
            Some(trust) => {
                let (files, trusts_anyone) = tls_files(trust, certificate_and_key);
                Some(
                    Watched::start(files, limits, tasks, reads, move |files| config(trusts_anyone, files))
                        .await?,
                )
            }
            None => None,
        };
        let authorization = match token {
            Some(file) => Some(
                Watched::start(vec![file], limits, tasks, reads, |files| {
                    Ok(Tokens::read(&files[0])?.header())
                })
                .await?,
            ),
            None => None,
        };
        Ok(Credentials { tls, server_name, authorization })
    }
}

/// The files that [`config`] is made of, and whether anyone is trusted.
pub(crate) fn tls_files(
    trust: Trust,
    certificate_and_key: Option<(PathBuf, PathBuf)>,
) -> (Vec<PathBuf>, bool) {
    let own = certificate_and_key.into_iter().flat_map(|(certificate, key)| [certificate, key]);
    match trust {
        Trust::Authorities(authorities) => (core::iter::once(authorities).chain(own).collect(), false),
        Trust::Anyone => (own.collect(), true),
    }
}

/// `files` are the authorities, unless anyone is trusted, and then the own certificate and its key, if there is one.
pub(crate) fn config(trusts_anyone: bool, files: &[File]) -> Result<ClientConfig, CredentialError> {
    let builder = ClientConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider's suites serve the default versions");
    let (builder, own) = match files {
        [authorities, own @ ..] if !trusts_anyone => {
            (builder.with_root_certificates(pem::roots(authorities)?), own)
        }
        own => {
            let verifier = TrustAnyone(pem::provider());
            (builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)), own)
        }
    };
    let [certificate, key] = own else { return Ok(builder.with_no_client_auth()) };
    builder.with_client_auth_cert(pem::certificates(certificate)?, pem::key(key)?).map_err(|error| {
        let problem = format!("and {} do not go together: {error}", key.0.display());
        CredentialError::new(&certificate.0, problem)
    })
}

/// Takes every certificate whose key the server has.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
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
