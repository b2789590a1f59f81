//! Envoy as the engine sees it: one request during one hook.

use core::cell::Cell;
use core::net::SocketAddr;
use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

use endpoint_picker::headers::HeaderList;
use endpoint_picker::plugin::AttributeReport;
use endpoint_picker::pool::Endpoint;
use endpoint_picker::request::packed;
use endpoint_picker_engine::proxy::headers::{DESTINATION, NO_FALLBACK, SCORES};
use endpoint_picker_engine::proxy::metadata::{FALLBACK_KEY, LB, Metadata};
use endpoint_picker_engine::proxy::{Proxy, ProxyError, REJECTED_DETAILS, Result, Resume, parse_address};
use endpoint_picker_wire::endpoint_scores_field;

use super::configured::PickersOfPool;
use super::own_stream::OwnRequest;
use super::wake::Wake;
use crate::abi::{Attribute, BodyPart, HeaderMap, LocalReply, RequestHandle};
use crate::cluster::pick::{Pick, filter_state_key};
use crate::config::Steering;
use crate::process::clock;

/// The namespace of the explanation, and of the number of resumptions.
pub(super) const PICKER: &str = "endpoint-picker";

/// The header with the number of retries; Envoy's router removes it. A retry would go to any host that the
/// cluster's balancer chooses.
const MAX_RETRIES: &str = "x-envoy-max-retries";

/// Maximum size of the scores in metadata, in bytes.
const MAX_SCORES_BYTES: usize = 8191;

/// Kind of the current hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A chunk of a body has arrived.
    Body,
    /// Anything else.
    Other,
}

/// How a pool's requests are steered, and the keys of their filter state.
#[derive(Debug)]
pub(crate) struct SteeringKeys {
    steering: Steering,
    /// The mark that this pool's picker leaves.
    mark: String,
    /// The pickers that may read it.
    pickers: Arc<PickersOfPool>,
    /// The pick for the balancer.
    pick: String,
    /// The name of the pool that takes requests.
    taken_by: Arc<str>,
}

impl SteeringKeys {
    /// `pool` is the requests' own pool.
    pub(crate) fn new(steering: Steering, pool: &str, taken_by: &str) -> Self {
        let (mark, pick) = (format!("endpoint-picker.picked.{pool}"), filter_state_key(pool));
        Self { steering, mark, pickers: PickersOfPool::of(pool), pick, taken_by: taken_by.into() }
    }
}

/// The headers of a request, in the memory of a list that is not needed any more.
pub(super) fn request_headers(request: &RequestHandle<'_>, used: HeaderList) -> HeaderList {
    /// Room for usual requests.
    const USUAL: (usize, usize) = (32, 1024);
    let mut headers = used.emptied(USUAL);
    request.for_each_header(HeaderMap::Request, |name, value| headers.push(name, value));
    #[cfg(feature = "trap")]
    assert!(!headers.has("x-test-trap"), "the hook panics here, as asked");
    headers
}

/// An event of a request that the module sends itself.
#[derive(Debug)]
pub(crate) struct OwnEvent<'a> {
    pub(super) request: &'a mut OwnRequest,
    /// The chunk of the response that has arrived.
    pub(super) chunk: &'a [u8],
}

/// Bytes of the request's body.
#[derive(Clone, Copy, Debug)]
struct BodySizes {
    /// Bytes that Envoy holds.
    buffered: usize,
    /// Bytes that the hook brings; `None`: it brings none that Envoy does not hold too.
    received: Option<usize>,
}

/// One request during one hook.
#[derive(Debug)]
pub(crate) struct Envoy<'a, 'hook> {
    request: &'a mut RequestHandle<'hook>,
    event: Event,
    steering: &'a SteeringKeys,
    /// Asked once, until the body is replaced.
    sizes: Cell<Option<BodySizes>>,
    /// The time of the hook, read once.
    now: Cell<Option<Duration>>,
    /// The first destination.
    first: String,
    pick: &'a mut Option<Pick>,
    /// The request that the module sends itself, in place of the one that Envoy passes on.
    own: Option<OwnEvent<'a>>,
    /// The response to send when the engine has returned, because Envoy calls further hooks while it is sent.
    pub(crate) reply: Option<LocalReply>,
}

#[cold]
fn refused(call: &'static str) -> ProxyError {
    ProxyError { call, status: "refused".to_owned() }
}

fn done(is_done: bool, call: &'static str) -> Result<()> {
    is_done.then_some(()).ok_or_else(|| refused(call))
}

impl<'a, 'hook> Envoy<'a, 'hook> {
    /// The request, for one hook.
    pub(crate) fn new(
        request: &'a mut RequestHandle<'hook>,
        event: Event,
        steering: &'a SteeringKeys,
        pick: &'a mut Option<Pick>,
        own: Option<OwnEvent<'a>>,
    ) -> Self {
        Self {
            request,
            event,
            steering,
            sizes: Cell::new(None),
            now: Cell::new(None),
            first: String::new(),
            pick,
            own,
            reply: None,
        }
    }

    /// The request, for calls that are not the engine's.
    pub(super) fn handle(&mut self) -> &mut RequestHandle<'hook> {
        self.request
    }

    fn body_sizes(&self) -> BodySizes {
        if let Some(sizes) = self.sizes.get() {
            return sizes;
        }
        let buffered = self.request.body_size(BodyPart::BufferedRequest);
        let has_received =
            self.event == Event::Body && (buffered == 0 || !self.request.received_is_buffered());
        let received = has_received.then(|| self.request.body_size(BodyPart::ReceivedRequest));
        let sizes = BodySizes { buffered, received };
        self.sizes.set(Some(sizes));
        sizes
    }

    /// Bytes of the request's body that have arrived.
    pub(crate) fn request_body_size(&self) -> usize {
        if let Some(own) = &self.own {
            return own.request.body.len();
        }
        let BodySizes { buffered, received } = self.body_sizes();
        buffered + received.unwrap_or(0)
    }

    /// The first `max_bytes` bytes of these parts of a body, which have `size` bytes. A single chunk, as in
    /// most bodies, is not copied.
    fn join(&self, parts: &[BodyPart], max_bytes: usize, size: impl Fn() -> usize) -> Cow<'_, [u8]> {
        let mut all = Cow::Borrowed(&[][..]);
        for &part in parts {
            self.request.for_each_piece(part, |piece| {
                let room = max_bytes - all.len();
                let piece = piece.get(..room).unwrap_or(piece);
                if all.is_empty() {
                    all = Cow::Borrowed(piece);
                    return;
                }
                if let Cow::Borrowed(first) = all {
                    let mut both = Vec::with_capacity(size().min(max_bytes));
                    both.extend_from_slice(first);
                    all = Cow::Owned(both);
                }
                all.to_mut().extend_from_slice(piece);
            });
        }
        all
    }

    fn set_lb_text(&mut self, key: &str, value: &str) {
        self.request.set_metadata_text(LB, key, value);
    }

    /// Prefers the first destination, for the first attempt; strictly: that attempt goes to no other host.
    fn override_host(&mut self, strict: bool) -> Result<()> {
        done(self.request.set_override_host(&self.first, strict), "http_set_upstream_override_host")
    }

    /// Leaves the destinations for the balancer of the module's cluster.
    fn leave_pick(&mut self, list: &str) -> Result<()> {
        let pick = self.pick.insert(Pick::new(list, &self.steering.taken_by));
        done(
            self.request.set_filter_state(&self.steering.pick, &pick.to_bytes()),
            "http_set_filter_state_bytes",
        )
    }
}

impl Proxy for Envoy<'_, '_> {
    fn now(&self) -> Result<Duration> {
        let now = self.now.get().unwrap_or_else(clock::now);
        self.now.set(Some(now));
        Ok(now)
    }

    fn elapsed(&self, since: Duration) -> Result<Duration> {
        Ok(clock::now().saturating_sub(since))
    }

    fn resume(&self) -> Result<Resume> {
        let scheduler = self.request.scheduler().ok_or_else(|| refused("http_filter_scheduler_new"))?;
        Ok(Box::new(move || scheduler.commit(Wake::Resumed.into())))
    }

    fn request_headers(&self, used: HeaderList) -> Result<HeaderList> {
        Ok(request_headers(self.request, used))
    }

    fn set_request_header(&mut self, name: &str, value: &str) -> Result<()> {
        done(self.request.set_header(HeaderMap::Request, name, Some(value)), "http_set_header")
    }

    fn remove_request_header(&mut self, name: &str) -> Result<()> {
        done(self.request.set_header(HeaderMap::Request, name, None), "http_set_header")
    }

    fn request_body(&self, max_bytes: usize) -> Result<Cow<'_, [u8]>> {
        if let Some(own) = &self.own {
            let body = &own.request.body;
            return Ok(body.get(..max_bytes).unwrap_or(body).into());
        }
        let parts: &[BodyPart] = match self.body_sizes() {
            BodySizes { received: None, .. } => &[BodyPart::BufferedRequest],
            BodySizes { buffered: 0, received: Some(_) } => &[BodyPart::ReceivedRequest],
            BodySizes { .. } => &[BodyPart::BufferedRequest, BodyPart::ReceivedRequest],
        };
        Ok(self.join(parts, max_bytes, || self.request_body_size()))
    }

    fn request_chunk(&self) -> Result<Cow<'_, [u8]>> {
        // An earlier filter that has held the body passes all of it on at once.
        let BodySizes { buffered, received } = self.body_sizes();
        Ok(match received {
            Some(received) => self.join(&[BodyPart::ReceivedRequest], usize::MAX, || received),
            None => self.join(&[BodyPart::BufferedRequest], usize::MAX, || buffered),
        })
    }

    fn replace_request_body(&mut self, body: &[u8]) -> Result<()> {
        if let Some(own) = &mut self.own {
            own.request.body = body.to_vec();
            return Ok(());
        }
        // In a body hook Envoy passes on the buffered part and after it the received part. The new body
        // replaces the received part, and the buffered part is emptied.
        let (new, old) = if self.event == Event::Body {
            let has_both = self.body_sizes().received.is_some();
            (BodyPart::ReceivedRequest, has_both.then_some(BodyPart::BufferedRequest))
        } else {
            (BodyPart::BufferedRequest, None)
        };
        self.sizes.set(None);
        if let Some(old) = old {
            self.request.replace_body(old, &[]);
        }
        done(self.request.replace_body(new, body), "http_append_body")
    }

    fn metadata_namespace(&self, namespace: &str) -> Result<Option<Vec<u8>>> {
        let keys = self.request.metadata_keys(namespace);
        Ok((!keys.is_empty()).then(|| packed::list(&keys)))
    }

    fn metadata(&self, namespace: &str, key: &str) -> Result<Option<Vec<u8>>> {
        // The list first: Envoy logs an error when a value that is not a text is read as one.
        if let Some(items) = self.request.metadata_list(namespace, key) {
            return Ok(Some(packed::list(&items)));
        }
        let text = self.request.metadata_text(namespace, key);
        Ok(text.filter(|text| !text.is_empty()).map(<[u8]>::to_vec))
    }

    fn set_metadata(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        match *metadata {
            // The header has the destination.
            Metadata::Destination(_) | Metadata::NoFallback | Metadata::RetryIn(_) if self.own.is_some() => {
                Ok(())
            }
            Metadata::Destination(list) => match self.steering.steering {
                Steering::Metadata => {
                    self.set_lb_text(DESTINATION, list);
                    Ok(())
                }
                Steering::OverrideHost => {
                    // Header and metadata name the one host that is used, because a subset load balancer
                    // finds the host by them.
                    list.split(',').next().unwrap_or_default().clone_into(&mut self.first);
                    self.request.set_metadata_text(LB, DESTINATION, &self.first);
                    let has_header =
                        self.request.set_header(HeaderMap::Request, DESTINATION, Some(&self.first));
                    done(has_header, "http_set_header")?;
                    self.override_host(false)
                }
                Steering::Cluster => {
                    self.set_lb_text(DESTINATION, list);
                    self.leave_pick(list)
                }
            },
            Metadata::NoFallback => match self.steering.steering {
                Steering::Metadata => {
                    self.set_lb_text(FALLBACK_KEY, NO_FALLBACK);
                    Ok(())
                }
                Steering::OverrideHost => {
                    self.override_host(true)?;
                    self.set_request_header(MAX_RETRIES, "0")
                }
                Steering::Cluster => {
                    if let Some(pick) = self.pick {
                        pick.stay();
                    }
                    Ok(())
                }
            },
            Metadata::RetryIn(pools) => {
                if let Some(pick) = self.pick {
                    pick.retry_in(pools);
                }
                Ok(())
            }
            Metadata::Explanation(text) | Metadata::ShadowExplanation(text) => {
                self.request.set_metadata_text(PICKER, "explanation", text);
                Ok(())
            }
            Metadata::Attribute(AttributeReport { namespace, name, value }) => {
                // A number of metadata is a double.
                self.request.set_metadata_number(namespace, name, value as f64);
                Ok(())
            }
            Metadata::Scores(scores) => {
                let field = endpoint_scores_field(SCORES, scores.to_vec(), MAX_SCORES_BYTES);
                if !self.request.merge_metadata(LB, &field) {
                    log::debug!("Envoy before 1.40 has no structures in metadata; scores are left out");
                }
                Ok(())
            }
        }
    }

    fn picked_for(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.request.filter_state(&self.steering.mark).map(<[u8]>::to_vec))
    }

    fn mark_picked(&mut self, pool: &str) -> Result<()> {
        if !self.steering.pickers.may_share_chain() {
            return Ok(());
        }
        // Envoy refuses to set a value twice.
        let is_marked = self.request.filter_state(&self.steering.mark).is_some();
        done(
            is_marked || self.request.set_filter_state(&self.steering.mark, pool.as_bytes()),
            "http_set_filter_state_bytes",
        )
    }

    fn send_response(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<()> {
        let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.reply = Some(LocalReply { status, headers, body: body.to_vec(), details: REJECTED_DETAILS });
        Ok(())
    }

    fn upstream_address(&self, likely: Option<&Endpoint>) -> Result<Option<SocketAddr>> {
        if let Some(own) = &self.own {
            return Ok(own.request.server);
        }
        // The module's balancer has noted the address. It has none for a request that went to another
        // cluster.
        if let Some(address) = self.pick.as_ref().and_then(Pick::last) {
            return Ok(Some(address));
        }
        let address = self.request.attribute(Attribute::UpstreamAddress);
        Ok(address.and_then(|text| parse_address(text, likely)))
    }

    fn attempts(&self) -> Option<u64> {
        if self.own.is_some() { Some(1) } else { self.request.attempts() }
    }

    fn response_details(&self) -> Result<Vec<u8>> {
        if let Some(own) = &self.own {
            return Ok(own.request.details.into());
        }
        Ok(self.request.attribute(Attribute::ResponseCodeDetails).unwrap_or_default().to_vec())
    }

    fn read_response_headers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        if let Some(own) = &self.own {
            own.request.head.iter().for_each(|(name, value)| read(name, value));
            return Ok(());
        }
        self.request.for_each_header(HeaderMap::Response, read);
        Ok(())
    }

    fn read_response_trailers(&self, read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.request.for_each_header(HeaderMap::ResponseTrailers, read);
        Ok(())
    }

    fn set_response_header(&mut self, name: &str, value: &str) -> Result<()> {
        if let Some(own) = &mut self.own {
            own.request.set_header(name, Some(value));
            return Ok(());
        }
        done(self.request.set_header(HeaderMap::Response, name, Some(value)), "http_set_header")
    }

    fn remove_response_header(&mut self, name: &str) -> Result<()> {
        if let Some(own) = &mut self.own {
            own.request.set_header(name, None);
            return Ok(());
        }
        done(self.request.set_header(HeaderMap::Response, name, None), "http_set_header")
    }

    fn response_chunk(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(own) = &self.own {
            return Ok(own.chunk.into());
        }
        let part = BodyPart::ReceivedResponse;
        Ok(self.join(&[part], usize::MAX, || self.request.body_size(part)))
    }

    fn replace_response_chunk(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(own) = &mut self.own {
            own.request.replacement = Some(bytes.to_vec());
            return Ok(());
        }
        done(self.request.replace_body(BodyPart::ReceivedResponse, bytes), "http_append_body")
    }
}
