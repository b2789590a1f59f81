//! A proxy in memory.

use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

use endpoint_picker::headers::HeaderList;
use endpoint_picker::plugin::AttributeReport;
use endpoint_picker::pool::Endpoint;
use endpoint_picker_engine::proxy::metadata::Metadata;
use endpoint_picker_engine::proxy::{Proxy, ProxyError, Result, Resume};

/// A response that the filter sent instead of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// One request in a proxy. Tests set what the proxy returns and read what the engine did.
#[derive(Debug, Default)]
pub(crate) struct FakeProxy {
    pub(crate) now: Cell<Duration>,
    /// The time that a decision takes.
    pub(crate) decision: Duration,
    pub(crate) request_headers: Vec<(String, Vec<u8>)>,
    pub(crate) request_body: Vec<u8>,
    /// The chunk that is passing, where none is held.
    pub(crate) request_chunk: Vec<u8>,
    /// The sizes of the reads of the body.
    pub(crate) body_reads: RefCell<Vec<usize>>,
    pub(crate) namespace: Option<Vec<u8>>,
    pub(crate) hint: Option<Vec<u8>>,
    pub(crate) picked_for: Option<Vec<u8>>,
    /// The names of other pools whose endpoints the proxy may try.
    pub(crate) retry_in: Vec<Arc<str>>,
    /// The numbers of responses, with their namespaces and names.
    pub(crate) numbers: Vec<(String, String, i64)>,
    /// The explanation of a decision that does not act.
    pub(crate) shadow_explanation: Option<String>,
    pub(crate) local_answer: Option<LocalAnswer>,
    pub(crate) upstream: Option<SocketAddr>,
    pub(crate) attempts: Option<u64>,
    pub(crate) details: &'static str,
    pub(crate) response_headers: Vec<(String, Vec<u8>)>,
    pub(crate) chunk: Vec<u8>,
    /// The number of reads of response chunks.
    pub(crate) chunk_reads: Cell<usize>,
    pub(crate) response_trailers: Vec<(String, Vec<u8>)>,
    /// How often the queue has resumed the request.
    pub(crate) resumes: Arc<AtomicUsize>,
    /// Calls that the proxy refuses.
    pub(crate) refused: Vec<&'static str>,
}

impl FakeProxy {
    pub(crate) fn request_header(&self, name: &str) -> Option<&str> {
        header(&self.request_headers, name)
    }

    pub(crate) fn response_header(&self, name: &str) -> Option<&str> {
        header(&self.response_headers, name)
    }

    fn check(&self, call: &'static str) -> Result<()> {
        if self.refused.contains(&call) {
            return Err(ProxyError { call, status: "InternalFailure".to_owned() });
        }
        Ok(())
    }
}

fn header<'a>(headers: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a str> {
    let (_, value) = headers.iter().find(|(header, _)| header == name)?;
    Some(core::str::from_utf8(value).unwrap())
}

fn set(headers: &mut Vec<(String, Vec<u8>)>, name: &str, value: &str) {
    headers.retain(|(header, _)| header != name);
    headers.push((name.to_owned(), value.as_bytes().to_vec()));
}

impl Proxy for FakeProxy {
    fn now(&self) -> Result<Duration> {
        self.check("now").map(|()| self.now.get())
    }

    fn elapsed(&self, since: Duration) -> Result<Duration> {
        Ok(self.now()?.saturating_sub(since) + self.decision)
    }

    fn resume(&self) -> Result<Resume> {
        self.check("resume")?;
        let resumes = Arc::clone(&self.resumes);
        Ok(Box::new(move || {
            resumes.fetch_add(1, Ordering::Relaxed);
        }))
    }

    fn request_headers(&self, _used: HeaderList) -> Result<HeaderList> {
        self.check("request_headers").map(|()| self.request_headers.iter().cloned().collect())
    }

    fn set_request_header(&mut self, name: &str, value: &str) -> Result<()> {
        self.check("set_request_header")?;
        set(&mut self.request_headers, name, value);
        Ok(())
    }

    fn remove_request_header(&mut self, name: &str) -> Result<()> {
        self.check("remove_request_header")?;
        self.request_headers.retain(|(header, _)| header != name);
        Ok(())
    }

    fn request_body(&self, max_bytes: usize) -> Result<Cow<'_, [u8]>> {
        self.check("request_body")?;
        self.body_reads.borrow_mut().push(max_bytes);
        Ok(self.request_body[..max_bytes.min(self.request_body.len())].into())
    }

    fn request_chunk(&self) -> Result<Cow<'_, [u8]>> {
        self.check("request_chunk").map(|()| self.request_chunk.as_slice().into())
    }

    fn replace_request_body(&mut self, body: &[u8]) -> Result<()> {
        self.check("replace_request_body")?;
        self.request_body = body.to_vec();
        Ok(())
    }

    fn metadata_namespace(&self, _: &str) -> Result<Option<Vec<u8>>> {
        self.check("metadata_namespace").map(|()| self.namespace.clone())
    }

    fn metadata(&self, _: &str, _: &str) -> Result<Option<Vec<u8>>> {
        self.check("metadata").map(|()| self.hint.clone())
    }

    fn set_metadata(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        if let Metadata::ShadowExplanation(text) = metadata {
            self.shadow_explanation = Some((*text).to_owned());
        }
        if let Metadata::RetryIn(pools) = metadata {
            self.retry_in = pools.to_vec();
        }
        if let Metadata::Attribute(AttributeReport { namespace, name, value }) = *metadata {
            self.check("set_metadata")?;
            self.numbers.push((namespace.to_owned(), name.to_owned(), value));
        }
        match metadata.as_header() {
            Some((name, value)) => self.set_request_header(name, &value),
            None => Ok(()),
        }
    }

    fn picked_for(&self) -> Result<Option<Vec<u8>>> {
        self.check("picked_for").map(|()| self.picked_for.clone())
    }

    fn mark_picked(&mut self, pool: &str) -> Result<()> {
        self.check("mark_picked")?;
        self.picked_for = Some(pool.as_bytes().to_vec());
        Ok(())
    }

    fn send_response(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<()> {
        self.check("send_response")?;
        let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = String::from_utf8(body.to_vec()).unwrap();
        self.local_answer = Some(LocalAnswer { status, headers, body });
        Ok(())
    }

    fn upstream_address(&self, _likely: Option<&Endpoint>) -> Result<Option<SocketAddr>> {
        self.check("upstream_address").map(|()| self.upstream)
    }

    fn attempts(&self) -> Option<u64> {
        self.attempts
    }

    fn response_details(&self) -> Result<Vec<u8>> {
        self.check("response_details").map(|()| self.details.as_bytes().to_vec())
    }

    fn read_response_headers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.check("read_response_headers")?;
        for (name, value) in &self.response_headers {
            read(name.as_bytes(), value);
        }
        Ok(())
    }

    fn read_response_trailers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.check("read_response_trailers")?;
        for (name, value) in &self.response_trailers {
            read(name.as_bytes(), value);
        }
        Ok(())
    }

    fn set_response_header(&mut self, name: &str, value: &str) -> Result<()> {
        self.check("set_response_header")?;
        set(&mut self.response_headers, name, value);
        Ok(())
    }

    fn remove_response_header(&mut self, name: &str) -> Result<()> {
        self.check("remove_response_header")?;
        self.response_headers.retain(|(header, _)| header != name);
        Ok(())
    }

    fn response_chunk(&self) -> Result<Cow<'_, [u8]>> {
        self.chunk_reads.set(self.chunk_reads.get() + 1);
        self.check("response_chunk").map(|()| self.chunk.as_slice().into())
    }

    fn replace_response_chunk(&mut self, bytes: &[u8]) -> Result<()> {
        self.check("replace_response_chunk")?;
        self.chunk = bytes.to_vec();
        Ok(())
    }
}
