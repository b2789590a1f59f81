//! Certificates and keys in PEM.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::CredentialError;
use super::files::File;

/// The cryptography of all connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A certificate chain, the owner's certificate first.
pub(crate) fn certificates((path, bytes): &File) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(CredentialError::new(path, "has no certificate in PEM")),
    }
}

/// The first private key of the file.
pub(crate) fn key((path, bytes): &File) -> Result<PrivateKeyDer<'static>, CredentialError> {
    PrivateKeyDer::from_pem_slice(bytes)
        .map_err(|_| CredentialError::new(path, "has no private key in PEM (PKCS#8, PKCS#1 or SEC1)"))
}

/// The certificates to trust.
pub(crate) fn roots(file: &File) -> Result<RootCertStore, CredentialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| {
            CredentialError::new(&file.0, format!("has a certificate that cannot be trusted: {error}"))
        })?;
    }
    Ok(roots)
}
