//! The heads of a request and its response, without the headers that only the picker may set.

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::grpc::{Status, is_grpc};
use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::request::body::{Api, BodyError, opens_tunnel, request_path};
use endpoint_picker::request::packed;
use endpoint_picker::request::stored::StoredId;
use endpoint_picker::request::subset::Subset;
use endpoint_picker::response::outcome::{RequestKind, ServerOutcome};
use smallvec::SmallVec;

use crate::config::{Explain, Mode};
use crate::proxy::headers::{CONTROL, DESTINATION, OF_ANSWERS};
use crate::proxy::{Proxy, Result};

/// The header with the length of a body.
pub(super) const CONTENT_LENGTH: &str = "content-length";

/// The metadata namespace of the subset hint, which an earlier filter sets.
const HINT_NAMESPACE: &str = "envoy.lb.subset_hint";
/// The key of the hint.
const HINT_KEY: &str = "x-gateway-destination-endpoint-subset";

/// The head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    /// The API that decides how the body is read, once it is [found](Self::find_api).
    pub(super) api: Api,
    /// The kind of the request, by which its response is judged.
    pub(super) kind: RequestKind,
    /// The stored response or conversation that the path names.
    pub(super) stored: Option<StoredId>,
    /// All headers as the client sent them, until the request is decided.
    pub(super) all: HeaderList,
    /// Whether the client is one of gRPC.
    pub(super) is_grpc: bool,
    /// The client has sent the secret, so the response carries an explanation.
    pub(super) explains_to_client: bool,
    /// The decision is explained, to the client or the access log.
    pub(super) explains: bool,
}

/// The outcome of reading a request's head.
pub(super) enum RequestOwner {
    /// This picker decides.
    Own(RequestHead),
    /// Another picker of the same chain has picked for this pool, and its headers stay.
    AnotherPicker,
}

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            api: Api::Raw,
            kind: RequestKind::default(),
            stored: None,
            all: HeaderList::EMPTY,
            is_grpc: false,
            explains_to_client: false,
            explains: false,
        }
    }
}

impl RequestHead {
    /// Reads the request's headers and removes those that steer the request.
    /// They are copied into the memory of a list that is not needed any more.
    pub(super) fn take(
        proxy: &mut impl Proxy,
        pool: &str,
        explain: &Explain,
        used: HeaderList,
    ) -> Result<RequestOwner> {
        let headers = proxy.request_headers(used)?;
        let control: Vec<&str> = headers.iter().filter_map(|(name, _)| listed(name, &CONTROL)).collect();
        // Only a picker or a client sets the destination, so most requests cost no second call.
        if control.contains(&DESTINATION)
            && proxy.picked_for()?.is_some_and(|picked| picked == pool.as_bytes())
        {
            return Ok(RequestOwner::AnotherPicker);
        }
        for name in control {
            proxy.remove_request_header(name)?;
        }
        Self::of(headers, proxy, explain).map(RequestOwner::Own)
    }

    /// Reads the headers of a request that another picker has routed. They stay, but for the secret.
    pub(super) fn read(proxy: &mut impl Proxy, explain: &Explain) -> Result<Self> {
        Self::of(proxy.request_headers(HeaderList::EMPTY)?, proxy, explain)
    }

    fn of(headers: HeaderList, proxy: &mut impl Proxy, explain: &Explain) -> Result<Self> {
        let mut explains_to_client = false;
        if let Explain { header: Some(name), secret: Some(secret), .. } = explain {
            let expected = (name.as_bytes(), secret.as_bytes());
            explains_to_client = headers.iter().any(|header| header == expected);
            if headers.has(name) {
                proxy.remove_request_header(name)?;
            }
        }
        let content_type = Headers(&headers).get("content-type");
        Ok(Self {
            api: Api::Raw,
            kind: RequestKind::default(),
            stored: None,
            is_grpc: content_type.is_some_and(|content_type| is_grpc(content_type.as_bytes())),
            explains_to_client,
            explains: explains_to_client || explain.access_log,
            all: headers,
        })
    }

    pub(super) fn headers(&self) -> Headers<'_> {
        Headers(&self.all)
    }

    /// Finds the API of the request by these rules. The body is read as a body of this API, even if the rules
    /// change before it arrives.
    pub(super) fn find_api(
        &mut self,
        pipeline: &Pipeline,
        has_body: bool,
    ) -> core::result::Result<Api, BodyError> {
        let path = request_path(self.headers().get(":path"), self.headers());
        let api = pipeline.api(path)?;
        // The data of a tunnel and the messages of an unknown service are conversations: they are not held.
        let is_conversation = opens_tunnel(self.headers()) || self.is_grpc && api == Api::ModelOnly;
        let api = if is_conversation { Api::Raw } else { api };
        // The paths of the other APIs end with their names.
        let may_name_id = !has_body || matches!(api, Api::ModelOnly | Api::Raw);
        let stored = if may_name_id { StoredId::in_path(path) } else { None };
        self.kind = RequestKind::of(api, path, has_body);
        self.stored = stored;
        self.api = api;
        Ok(api)
    }

    /// The error of a body that is read and has a content encoding; `None`: it has none, or is one of gRPC,
    /// whose messages have their own.
    pub(super) fn encoding_error(&self) -> Option<BodyError> {
        let encoding = content_encoding(self.headers()).filter(|_| !self.api.reads_first_message())?;
        Some(BodyError::Encoded { encoding: encoding.to_owned() })
    }

    /// The length of the body, if the client has sent it.
    pub(super) fn content_length(&self) -> Option<u64> {
        self.headers().get(CONTENT_LENGTH)?.parse().ok()
    }

    /// The rejection when as much of the body has arrived as can be held.
    pub(super) fn too_large(&self, max_bytes: usize) -> Rejection {
        if self.api.reads_first_message() {
            Rejection::message_too_large(max_bytes)
        } else {
            Rejection::body_too_large(max_bytes)
        }
    }

    /// Gives the memory of the headers to the next request, some 2 KiB for as long as the response takes.
    pub(super) fn forget_headers(&mut self, spare: &mut HeaderList) {
        if !self.all.is_empty() {
            *spare = core::mem::take(&mut self.all);
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.all.has(name)
    }
}

/// The encoding of a request's body, if its head declares one.
pub(crate) fn content_encoding(headers: Headers<'_>) -> Option<&str> {
    let encoding = headers.get("content-encoding").map(str::trim)?;
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then_some(encoding)
}

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// 0 if it cannot be read.
    pub(super) status: u16,
    /// Holds `text/event-stream; charset=utf-8` in place.
    pub(super) content_type: SmallVec<[u8; 32]>,
    pub(super) content_encoding: Option<Vec<u8>>,
    /// Whether it is one of gRPC.
    pub(super) is_grpc: bool,
    /// The status of a gRPC response that has ended with its head.
    pub(super) grpc_status: Option<Status>,
}

impl ResponseHead {
    /// Reads the response's headers, and where the filter picks removes those that a server must not set.
    pub(super) fn take(proxy: &mut impl Proxy, mode: Mode) -> Result<Self> {
        let mut head = Self {
            status: 0,
            content_type: SmallVec::new(),
            content_encoding: None,
            is_grpc: false,
            grpc_status: None,
        };
        let mut reserved = Vec::new();
        proxy.read_response_headers(|name, value| match name {
            b":status" => {
                let status = core::str::from_utf8(value).ok().and_then(|status| status.parse().ok());
                head.status = status.unwrap_or(0);
            }
            b"content-type" => head.content_type = SmallVec::from_slice(value),
            b"grpc-status" => head.grpc_status = Status::read(value),
            b"content-encoding" => head.content_encoding = Some(value.to_vec()),
            _ => reserved.extend(listed(name, &OF_ANSWERS)),
        })?;
        head.is_grpc = is_grpc(&head.content_type);
        head.grpc_status = head.grpc_status.filter(|_| head.is_grpc);
        if mode == Mode::Pick {
            for name in reserved {
                proxy.remove_response_header(name)?;
            }
        }
        Ok(head)
    }

    /// The proof that the head gives about its server; `None` if the body shows it, or its trailers.
    pub(super) fn outcome(&self, kind: RequestKind) -> Option<ServerOutcome> {
        match (self.grpc_status, ServerOutcome::of_status(self.status, kind)) {
            (Some(status), _) if self.status < 400 => Some(ServerOutcome::of_call(status, kind)),
            (None, _) if self.is_grpc && self.status < 400 => None,
            (_, ServerOutcome::Served) => None,
            (_, outcome) => Some(outcome),
        }
    }

    /// Whether the status is one of a server, or of the proxy in its place, that has not done its work.
    pub(super) fn is_server_error(&self) -> bool {
        self.status >= 500 || self.grpc_status.is_some_and(Status::is_server_failure)
    }
}

/// Reads the subset hint: a list, or a comma-separated string. Any other value names no endpoint, nor does a
/// value that the proxy cannot return, such as a list with `null` in it.
pub(super) fn subset_hint(proxy: &impl Proxy) -> Subset {
    // Most requests have no metadata in this namespace, and reading it costs half as much as reading the key.
    let namespace = match proxy.metadata_namespace(HINT_NAMESPACE) {
        Ok(None) => return Subset::All,
        Ok(namespace) => namespace,
        Err(_) => None,
    };
    match proxy.metadata(HINT_NAMESPACE, HINT_KEY) {
        Ok(Some(value)) => Subset::from_metadata(&value),
        // Envoy returns an empty string like an absent value. The namespace's keys distinguish the two, if
        // they can be read.
        Ok(None) => match namespace.as_deref().and_then(packed::strings) {
            Some(keys) if !keys.contains(&HINT_KEY) => Subset::All,
            _ => Subset::from_items([]),
        },
        Err(error) => {
            log::debug!("{error}; the subset hint names no endpoint");
            Subset::from_items([])
        }
    }
}

/// The name if it is in this list, in which all names begin with `x-`.
fn listed(name: &[u8], names: &[&'static str]) -> Option<&'static str> {
    if !name.starts_with(b"x-") {
        return None;
    }
    names.iter().copied().find(|listed| listed.as_bytes() == name)
}
