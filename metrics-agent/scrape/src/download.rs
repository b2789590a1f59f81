//! The response to one scrape: its body, as it is or compressed, or a redirect.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use flate2::write::MultiGzDecoder;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{HeaderMap, StatusCode, Uri};
use metrics_agent_catalogue::scraping::Scheme;
use metrics_agent_support::client::{ConnectionError, Receiver};

use super::error::ScrapeError;
use super::exposition::{LineReader, TextReader};

const PROMETHEUS_TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Maximum number of bytes of a text: seventy times those of vLLM.
pub(crate) const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of series of a text.
const MAX_SERIES: usize = 50_000;

/// Reads the body of a response in the chunks in which it arrives.
pub trait BodyReader {
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

/// The statuses of redirects that keep the method of a GET request.
const REDIRECTS: [StatusCode; 4] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// The server that is scraped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScrapedServer {
    pub(crate) scheme: Scheme,
    pub(crate) address: SocketAddr,
}

impl ScrapedServer {
    /// The path and query of a redirect's location, if it is on this server.
    fn path_of(self, location: &str) -> Option<Uri> {
        // A location that begins with two slashes names another host.
        if location.starts_with('/') && !location.starts_with("//") {
            return location.parse().ok();
        }
        let uri: Uri = location.parse().ok()?;
        let (scheme, default_port) = match self.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
        };
        let host: IpAddr = uri.host()?.trim_matches(['[', ']']).parse().ok()?;
        let is_same = uri.scheme_str() == Some(scheme)
            && host == self.address.ip()
            && uri.port_u16().unwrap_or(default_port) == self.address.port();
        let path = uri.path_and_query().filter(|_| is_same)?;
        path.as_str().parse().ok()
    }
}

/// Receives a response, and gives its body to a reader.
pub(crate) struct Download<'a, R> {
    server: ScrapedServer,
    reader: &'a mut R,
    /// Whether a redirect is followed.
    can_redirect: bool,
    body: DownloadedBody,
    content_type: Option<HeaderValue>,
}

/// The body of a response.
enum DownloadedBody {
    Plain,
    Gzip(Box<Gzip>),
    /// It is not read, because the response is a redirect to this path.
    Redirect(Uri),
}

/// A response that was received.
pub(crate) struct Downloaded {
    /// The path to get next; `None`: the body was read.
    pub(crate) redirect: Option<Uri>,
    pub content_type: Option<HeaderValue>,
}

impl<'a, R: BodyReader> Download<'a, R> {
    pub(crate) fn new(server: ScrapedServer, reader: &'a mut R, can_redirect: bool) -> Self {
        Self { server, reader, can_redirect, body: DownloadedBody::Plain, content_type: None }
    }

    /// Ends the response.
    pub(crate) fn end(self) -> Result<Downloaded, ScrapeError> {
        let redirect = match self.body {
            DownloadedBody::Plain => None,
            DownloadedBody::Gzip(mut gzip) => {
                gzip.end(|text| feed(self.reader, text))?;
                None
            }
            DownloadedBody::Redirect(path) => Some(path),
        };
        Ok(Downloaded { redirect, content_type: self.content_type })
    }
}

impl<R: BodyReader> Receiver<ScrapeError> for Download<'_, R> {
    fn head(&mut self, status: StatusCode, headers: &HeaderMap) -> Result<(), ScrapeError> {
        if REDIRECTS.contains(&status)
            && let Some(location) = headers.get(LOCATION)
        {
            let location = String::from_utf8_lossy(location.as_bytes());
            let path = self.server.path_of(&location).filter(|_| self.can_redirect);
            let path = path.ok_or_else(|| ScrapeError::Redirect(status, shortened(&location)))?;
            self.body = DownloadedBody::Redirect(path);
            return Ok(());
        }
        if status != StatusCode::OK {
            return Err(ScrapeError::Status(status));
        }
        self.content_type = headers.get(CONTENT_TYPE).cloned();
        let encoding = headers.get(CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes).trim_ascii();
        let is = |name: &str| encoding.eq_ignore_ascii_case(name.as_bytes());
        if is("gzip") || is("x-gzip") {
            self.body = DownloadedBody::Gzip(Gzip::new(MAX_TEXT_BYTES).into());
        } else if !encoding.is_empty() && !is("identity") {
            return Err(ScrapeError::Encoding(shortened(&String::from_utf8_lossy(encoding))));
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: &[u8]) -> Result<(), ScrapeError> {
        let Self { reader, body, .. } = self;
        match body {
            DownloadedBody::Plain => feed(*reader, chunk),
            DownloadedBody::Gzip(gzip) => gzip.decode(chunk, |text| feed(*reader, text)),
            DownloadedBody::Redirect(_) => Ok(()),
        }
    }
}

fn feed(reader: &mut impl BodyReader, text: &[u8]) -> Result<(), ScrapeError> {
    reader.feed(text);
    if reader.series() <= MAX_SERIES { Ok(()) } else { Err(ScrapeError::TooManySeries(MAX_SERIES)) }
}

/// Maximum length of a server's text in a message, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The beginning of a server's text.
pub fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

/// Decompresses a body, a buffer at a time, up to a maximum length.
struct Gzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    decoded: usize,
    max_bytes: usize,
}

impl Gzip {
    fn new(max_bytes: usize) -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), decoded: 0, max_bytes }
    }

    /// Decompresses a chunk, and gives the text to `each`.
    fn decode(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), ScrapeError>,
    ) -> Result<(), ScrapeError> {
        // One call decompresses at most one buffer, so a small chunk of a large text does not take more
        // memory.
        while !chunk.is_empty() {
            let read = self.decoder.write(chunk).map_err(ScrapeError::Gzip)?;
            if read == 0 {
                return Err(ScrapeError::Gzip(io::ErrorKind::InvalidData.into()));
            }
            chunk = &chunk[read..];
            self.take(&mut each)?;
        }
        Ok(())
    }

    /// Ends the body.
    fn end(&mut self, each: impl FnMut(&[u8]) -> Result<(), ScrapeError>) -> Result<(), ScrapeError> {
        self.decoder.try_finish().map_err(ScrapeError::Gzip)?;
        self.take(each)
    }

    fn take(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), ScrapeError>) -> Result<(), ScrapeError> {
        let text = self.decoder.get_mut();
        self.decoded += text.len();
        if self.decoded > self.max_bytes {
            return Err(ConnectionError::TooLarge(self.max_bytes).into());
        }
        let outcome = each(text);
        text.clear();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// The text, and the length of its largest part.
    fn decoded(body: &[u8], chunk: usize, max_bytes: usize) -> Result<(Vec<u8>, usize), ScrapeError> {
        let (mut decoder, mut text, mut largest) = (Gzip::new(max_bytes), Vec::new(), 0);
        let mut each = |part: &[u8]| {
            text.extend_from_slice(part);
            largest = largest.max(part.len());
            Ok(())
        };
        for chunk in body.chunks(chunk) {
            decoder.decode(chunk, &mut each)?;
        }
        decoder.end(&mut each)?;
        Ok((text, largest))
    }

    #[test]
    fn a_compressed_text_is_read_however_it_is_cut() {
        let text = b"vllm:num_requests_waiting 1\n".repeat(5_000);
        let (body, halves) = (gzip(&text), [gzip(&text[..99]), gzip(&text[99..])].concat());
        for chunk in [1, 7, 32 * 1024] {
            assert_eq!(decoded(&body, chunk, text.len()).unwrap().0, text, "{chunk}");
            assert_eq!(decoded(&halves, chunk, text.len()).unwrap().0, text, "{chunk}, two members");
        }
    }

    #[test]
    fn a_small_body_of_a_large_text_takes_no_more_than_the_limit() {
        let bomb = gzip(&vec![b'\n'; 64 * 1024 * 1024]);
        assert!(bomb.len() < 70_000);
        let refused = decoded(&bomb, 32 * 1024, 1_000_000);
        assert!(matches!(refused, Err(ScrapeError::Connection(ConnectionError::TooLarge(1_000_000)))));
        let (text, largest) = decoded(&bomb, 32 * 1024, 64 * 1024 * 1024).unwrap();
        assert_eq!(text.len(), 64 * 1024 * 1024);
        assert!(largest <= 64 * 1024, "{largest}");
    }

    #[test]
    fn a_broken_body_is_an_error() {
        let body = gzip(b"vllm:num_requests_waiting 1\n");
        let mut flipped = body.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for broken in [&body[..body.len() - 3], &body[..5], b"vllm:num_requests_waiting 1\n", &flipped] {
            let error = decoded(broken, 7, 1_000).expect_err("broken");
            assert!(matches!(error, ScrapeError::Gzip(_)), "{error}");
        }
    }

    #[test]
    fn only_redirects_to_the_same_server_have_a_path() {
        let server = ScrapedServer { scheme: Scheme::Http, address: "10.0.0.1:8000".parse().unwrap() };
        let path = |location: &str| server.path_of(location).map(|path| path.to_string());
        for (location, expected) in [
            ("/metrics/", "/metrics/"),
            ("http://10.0.0.1:8000/metrics/?a=b", "/metrics/?a=b"),
            ("http://10.0.0.1:8000", "/"),
        ] {
            assert_eq!(path(location).as_deref(), Some(expected), "{location}");
        }
        for location in [
            "//10.0.0.2/metrics",
            "http://10.0.0.2:8000/metrics",
            "http://10.0.0.1:8001/metrics",
            "http://10.0.0.1/metrics",
            "https://10.0.0.1:8000/metrics",
            "http://10.0.0.1:8000@10.0.0.2/metrics",
            "http://localhost:8000/metrics",
            "metrics/",
            "",
            "/a b",
        ] {
            assert_eq!(path(location), None, "{location}");
        }
        let server = ScrapedServer { scheme: Scheme::Https, address: "[2001:db8::1]:443".parse().unwrap() };
        assert_eq!(server.path_of("https://[2001:db8::1]/m").unwrap(), "/m");
    }
}
