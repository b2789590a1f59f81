//! Certificates, keys and tokens, from files that are read again when they change.
//!
//! Their content reaches no log and no message: an error names the file and the problem, never its text.

pub mod tls_fault;

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::files;
use crate::runtime::{ResultCounter, Tasks};

/// A file without a usable credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialError {
    file: PathBuf,
    problem: String,
}

impl CredentialError {
    /// The problem of a file, as text that follows its name.
    pub fn new(file: &Path, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file.display(), self.problem)
    }
}

impl core::error::Error for CredentialError {}

/// A file and its bytes.
pub type File = (PathBuf, Vec<u8>);

/// Reads all files.
pub async fn read(files: Arc<[PathBuf]>) -> Result<Vec<File>, CredentialError> {
    let reading = tokio::task::spawn_blocking(move || files.iter().map(|file| read_one(file)).collect());
    reading.await.unwrap_or_else(|error| Err(CredentialError::new(Path::new(""), error.to_string())))
}

fn read_one(path: &Path) -> Result<File, CredentialError> {
    let read = files::read(path).map_err(|error| CredentialError::new(path, error.to_string()));
    read.map(|bytes| (path.to_owned(), bytes))
}

/// The cryptography of all connections.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A certificate chain, the owner's certificate first.
pub fn certificates((path, bytes): &File) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(CredentialError::new(path, "has no certificate in PEM")),
    }
}

/// The first private key of the file.
pub fn key((path, bytes): &File) -> Result<PrivateKeyDer<'static>, CredentialError> {
    PrivateKeyDer::from_pem_slice(bytes)
        .map_err(|_| CredentialError::new(path, "has no private key in PEM (PKCS#8, PKCS#1 or SEC1)"))
}

/// The certificates to trust.
pub fn roots(file: &File) -> Result<RootCertStore, CredentialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| {
            CredentialError::new(&file.0, format!("has a certificate that cannot be trusted: {error}"))
        })?;
    }
    Ok(roots)
}

/// The newest valid value made of the files. When the files become invalid, the error is logged and the last
/// value stays.
#[derive(Debug)]
pub struct Watched<T> {
    values: watch::Receiver<Arc<T>>,
    /// `None`: the files are read once.
    _task: Option<AbortOnDropHandle<()>>,
}

/// The tasks that read files again, and the counter of these readings.
pub type Watching<'a> = (&'a Tasks, &'a ResultCounter);

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the files now; with `watching`, again whenever one of them changes. Connections made with an
    /// earlier value stay open.
    pub async fn read(
        files: Vec<PathBuf>,
        watching: Option<Watching<'_>>,
        make: impl Fn(&[File]) -> Result<T, CredentialError> + Send + Sync + 'static,
    ) -> Result<Self, CredentialError> {
        let files: Arc<[PathBuf]> = files.into();
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let names = names.join(", ");
        let name = format!("credentials {names}");
        let first = read(Arc::clone(&files)).await;
        let value = make(first.as_ref().map_err(Clone::clone)?)?;
        let (sender, values) = watch::channel(Arc::new(value));
        let Some((tasks, reads)) = watching else { return Ok(Self { values, _task: None }) };
        let reads = reads.clone();
        let task = async move {
            let update = |read: &Result<Vec<File>, CredentialError>| {
                let value = read.as_ref().map_err(Clone::clone).and_then(|files| make(files));
                reads.count(value.is_ok());
                match value {
                    Ok(value) => {
                        tracing::info!(files = names, "credentials read");
                        sender.send_replace(Arc::new(value));
                    }
                    Err(error) => tracing::error!(%error, "credentials refused; the last valid ones stay"),
                }
            };
            files::poll_from(first, || read(Arc::clone(&files)), update).await;
        };
        Ok(Self { values, _task: Some(tasks.spawn(name, task)) })
    }

    /// The current value.
    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.values.borrow())
    }
}

/// Maximum length of a token, in bytes.
const MAX_BYTES: usize = 4096;

/// Bearer tokens, each of them valid. Several, so that clients can change to a new one before the old one is
/// removed.
pub struct Tokens(Vec<Vec<u8>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Reads one token from each line; empty lines are skipped.
    pub fn read((path, bytes): &File) -> Result<Self, CredentialError> {
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let tokens: Vec<_> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        let is_valid = |token: &Vec<u8>| token.len() <= MAX_BYTES && token.iter().all(u8::is_ascii_graphic);
        if tokens.is_empty() || !tokens.iter().all(is_valid) {
            let problem = format!(
                "has no valid token; allowed is one on each line, of up to {MAX_BYTES} visible ASCII characters"
            );
            return Err(CredentialError::new(path, problem));
        }
        Ok(Self(tokens))
    }

    /// Whether the value of an `authorization` header has one of the tokens. The time that this takes depends
    /// only on the tokens' lengths.
    pub fn allow(&self, authorization: &[u8]) -> bool {
        let Some((scheme, token)) = authorization.split_at_checked(b"bearer ".len()) else { return false };
        let same = self.0.iter().fold(Choice::from(0), |same, own| same | own.ct_eq(token));
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(same)
    }

    /// The `authorization` header with the first token.
    pub(crate) fn header(&self) -> HeaderValue {
        let value = [b"Bearer ", self.0[0].as_slice()].concat();
        let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from(value))
            .expect("a token is of visible ASCII characters");
        value.set_sensitive(true);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Tokens, String> {
        Tokens::read(&("token".into(), text.into())).map_err(|error| error.to_string())
    }

    #[test]
    fn each_line_is_a_token() {
        let tokens = read("first\r\n\nsecond\n").unwrap();
        for (header, allowed) in [
            ("Bearer first", true),
            ("bearer second", true),
            ("Bearer third", false),
            ("Bearer firs", false),
            ("Bearer first ", false),
            ("Bearer ", false),
            ("Bearer", false),
            ("", false),
            ("Basic  first", false),
            ("first", false),
        ] {
            assert_eq!(tokens.allow(header.as_bytes()), allowed, "{header:?}");
        }
    }

    #[test]
    fn a_file_without_a_valid_token_is_refused_and_its_text_is_not_repeated() {
        let long = "x".repeat(MAX_BYTES + 1);
        for text in ["", " \n", "sec ret", "s\u{e9}cret", &long] {
            let error = read(text).unwrap_err();
            assert!(error.contains("one on each line") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn debug_output_has_no_part_of_a_token() {
        let tokens = read("secret").unwrap();
        assert_eq!(format!("{tokens:?} {:?}", tokens.header()), "1 tokens Sensitive");
    }
}
