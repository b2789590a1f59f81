//! Certificates and token for the agent, read again when their files change.

use core::fmt;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use endpoint_picker::period::Period;

use crate::config::{AgentAccess, TlsFiles};

/// Time between two reads of the files.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Maximum length of a token, in bytes, as in the agent.
const MAX_TOKEN: usize = 4096;

/// TLS settings and token of a connection to the agent.
#[derive(Clone)]
pub(super) struct Credentials {
    /// `None`: no address needs TLS.
    pub(super) tls: Option<TlsConfig>,
    /// The value of the `authorization` header.
    pub(super) authorization: Option<String>,
}

/// A file without a usable credential. The file's content is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentCredentialError {
    file: PathBuf,
    problem: String,
}

impl AgentCredentialError {
    fn new(file: &Path, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for AgentCredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file.display(), self.problem)
    }
}

/// The files of the credentials, and their contents at the last read.
#[derive(Debug)]
pub(super) struct CredentialFiles {
    tls: Option<TlsFiles>,
    token: Option<PathBuf>,
    /// The pause between two reads.
    pause: Period,
    contents: Option<Result<FileContents, AgentCredentialError>>,
}

/// The bytes of the files.
#[derive(PartialEq, Eq)]
struct FileContents {
    authorities: Option<Vec<u8>>,
    certificate_and_key: Option<(Vec<u8>, Vec<u8>)>,
    token: Option<Vec<u8>>,
}

impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileContents")
    }
}

impl CredentialFiles {
    pub(super) fn new(access: &AgentAccess) -> Self {
        let AgentAccess { tls, token, .. } = access;
        Self { tls: tls.clone(), token: token.clone(), pause: Period::default(), contents: None }
    }

    /// Credentials, if the files have others than at the last call, or became unusable since. To be called
    /// often; the files are read once a second.
    pub(super) fn changed(&mut self, now: Duration) -> Option<Result<Credentials, AgentCredentialError>> {
        if self.contents.is_some() && self.pause.contains(now) {
            return None;
        }
        self.pause = Period::new(now, READ_EVERY);
        let contents = Some(self.read());
        if contents == self.contents {
            return None;
        }
        self.contents = contents;
        let contents = self.contents.as_ref()?;
        Some(contents.as_ref().map_err(Clone::clone).and_then(|contents| self.parse(contents)))
    }

    fn read(&self) -> Result<FileContents, AgentCredentialError> {
        let own = self.tls.as_ref().and_then(|tls| tls.certificate_and_key.as_ref());
        Ok(FileContents {
            authorities: self.tls.as_ref().map(|tls| read(&tls.authorities)).transpose()?,
            certificate_and_key: own
                .map(|(certificate, key)| Ok((read(certificate)?, read(key)?)))
                .transpose()?,
            token: self.token.as_deref().map(read).transpose()?,
        })
    }

    fn parse(&self, contents: &FileContents) -> Result<Credentials, AgentCredentialError> {
        let FileContents { authorities, certificate_and_key, token } = contents;
        let tls = match (&self.tls, authorities) {
            (Some(files), Some(authorities)) => {
                let own = files.certificate_and_key.as_ref().zip(certificate_and_key.as_ref());
                let own = own.map(|((certificate, key), (certificate_pem, key_pem))| {
                    let chain = certificates(certificate, certificate_pem)?;
                    Ok(ClientCert::new_with_certs(&chain, private_key(key, key_pem)?))
                });
                let trusted = certificates(&files.authorities, authorities)?;
                Some(
                    TlsConfig::builder()
                        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
                        .root_certs(RootCerts::Specific(Arc::new(trusted)))
                        .client_cert(own.transpose()?)
                        .build(),
                )
            }
            _ => None,
        };
        let authorization = self.token.as_ref().zip(token.as_ref());
        let authorization =
            authorization.map(|(file, token)| authorization_value(file, token)).transpose()?;
        Ok(Credentials { tls, authorization })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, AgentCredentialError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes =
        read().map_err(|error| AgentCredentialError::new(path, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(AgentCredentialError::new(path, format!("is larger than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

/// All certificates of a file.
fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<Certificate<'static>>, AgentCredentialError> {
    let items = parse_pem(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    let certificates: Vec<Certificate<'static>> = items
        .into_iter()
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(AgentCredentialError::new(file, "has no certificate in PEM"));
    }
    Ok(certificates)
}

fn private_key(file: &Path, pem: &[u8]) -> Result<PrivateKey<'static>, AgentCredentialError> {
    PrivateKey::from_pem(pem)
        .map_err(|_| AgentCredentialError::new(file, "has no private key in PEM (PKCS#8, PKCS#1 or SEC1)"))
}

/// The `authorization` header with the token on the file's first line that is not empty.
fn authorization_value(file: &Path, bytes: &[u8]) -> Result<String, AgentCredentialError> {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let token = lines.find(|line| !line.is_empty()).unwrap_or_default();
    let is_valid = (1..=MAX_TOKEN).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
    let token = core::str::from_utf8(token).ok().filter(|_| is_valid);
    let token = token.ok_or_else(|| {
        let allowed = format!("allowed are up to {MAX_TOKEN} visible ASCII characters on its first line");
        AgentCredentialError::new(file, format!("has no valid token; {allowed}"))
    })?;
    Ok(format!("Bearer {token}"))
}
