//! Meaning of a failed TLS handshake, and advice about it.

use core::error::Error;
use core::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// The flags for the TLS of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsFlags {
    /// Names the trusted authorities.
    pub authorities: &'static str,
    /// Sets the name in the server's certificate.
    pub server_name: &'static str,
    /// Set the client's certificate and key.
    pub certificate: &'static str,
}

/// A fault that the flags or another certificate of the server remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The server presents the certificate of an authority as its own, as `openssl req -x509` makes it.
    AuthorityAsServer,
    /// The issuer of the certificate is not trusted.
    UnknownIssuer,
    /// The certificate is for other names.
    OtherName,
    /// The server requires a certificate of the client.
    CertificateRequired,
    /// The server does not speak TLS.
    NotTls,
}

impl TlsFault {
    /// The fault behind an error, if it is one of these.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref() {
                return Self::of_rustls(error);
            }
            // The source of an I/O error is the source of the error in it.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }

    fn of_rustls(error: &rustls::Error) -> Option<Self> {
        match error {
            rustls::Error::InvalidCertificate(error) => match error {
                // An authority has the issuer's name, and another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(Self::UnknownIssuer),
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Some(Self::OtherName)
                }
                // The type of this error is not part of rustls.
                CertificateError::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
                    Some(Self::AuthorityAsServer)
                }
                _ => None,
            },
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA,
            ) => Some(Self::CertificateRequired),
            rustls::Error::InvalidMessage(_) => Some(Self::NotTls),
            _ => None,
        }
    }

    /// Advice that names these flags.
    pub fn advice(self, flags: &'static TlsFlags) -> Advice {
        Advice { fault: self, flags }
    }

    /// The fault in a few words.
    pub fn brief(self) -> &'static str {
        match self {
            Self::AuthorityAsServer => "the certificate is an authority's, not a server's",
            Self::UnknownIssuer => "the certificate's issuer is not trusted",
            Self::OtherName => "the certificate has another name",
            Self::CertificateRequired => "a client certificate is required",
            Self::NotTls => "the server does not speak TLS",
        }
    }
}

/// Advice about a fault.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    fault: TlsFault,
    flags: &'static TlsFlags,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TlsFlags { authorities, server_name, certificate } = self.flags;
        match self.fault {
            TlsFault::AuthorityAsServer => write!(
                f,
                "the server presents the certificate of an authority as its own, as `openssl req -x509` makes it by default; make one \
                 with -addext basicConstraints=critical,CA:FALSE and its address or name as subjectAltName, and name that file in {authorities}"
            ),
            TlsFault::UnknownIssuer => write!(
                f,
                "no authority of {authorities} has issued the server's certificate; name the file with its issuer, or with the \
                 certificate itself if it is self-signed"
            ),
            TlsFault::OtherName => write!(f, "set {server_name} to a name in the server's certificate"),
            TlsFault::CertificateRequired => {
                write!(f, "the server requires a client certificate that it trusts ({certificate})")
            }
            TlsFault::NotTls => f.write_str("the server does not speak TLS"),
        }
    }
}
