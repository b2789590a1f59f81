//! gRPC over HTTP: the content type, the prefix of a message, and the statuses.

/// The content type without the name of an encoding.
const CONTENT_TYPE: &[u8] = b"application/grpc";

/// Length of the prefix of each message, in bytes.
pub const PREFIX: usize = 5;

/// The prefix of a message in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Whether the message is compressed, by the encoding that the header `grpc-encoding` names.
    pub is_compressed: bool,
    /// Length of the message, in bytes.
    pub length: usize,
}

impl Prefix {
    /// The prefix that the bytes begin with; `None` if they are fewer.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let &[flag, a, b, c, d] = bytes.first_chunk::<PREFIX>()?;
        // On a 32-bit host a length of 4 GiB still fits.
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        Some(Self { is_compressed: flag != 0, length })
    }

    /// Offset of the end of the message, from the beginning of its prefix.
    pub fn end(self) -> usize {
        self.length.saturating_add(PREFIX)
    }
}

/// Whether a request or response with this `content-type` is gRPC: `application/grpc`, alone or followed by
/// `+` and an encoding. It is Envoy's rule (`Grpc::Common::hasGrpcContentType`), by which Envoy turns a local
/// response into the trailers of a call.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(CONTENT_TYPE);
    rest.is_some_and(|rest| rest.first().is_none_or(|&next| next == b'+'))
}

/// Whether a body of this `content-type` is a stream of messages: of gRPC, whatever the case and parameters,
/// or of gRPC-Web.
pub fn has_messages(content_type: &[u8]) -> bool {
    let prefix = content_type.get(..CONTENT_TYPE.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(CONTENT_TYPE))
}

/// The status of a finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    /// The call has succeeded.
    pub const OK: Self = Self(0);
    /// The request is malformed.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// Something that the request names does not exist.
    pub const NOT_FOUND: Self = Self(5);
    /// More of the body would have to be held than `limits.maxHeldBytes`, or the pool has no capacity for the
    /// request.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// A condition of the client is not met.
    pub const FAILED_PRECONDITION: Self = Self(9);
    /// No server can serve now.
    pub const UNAVAILABLE: Self = Self(14);

    /// The value of the header or trailer `grpc-status`; `None` if it is not a status.
    pub fn read(value: &[u8]) -> Option<Self> {
        core::str::from_utf8(value).ok()?.parse().ok().map(Self)
    }

    /// Whether the status is a failure of the server: `UNKNOWN`, `INTERNAL`, `UNAVAILABLE` or `DATA_LOSS`.
    /// Envoy counts these as 500 and 503. It also counts `DEADLINE_EXCEEDED` and `UNIMPLEMENTED` as errors of
    /// the server, but clients choose deadlines and methods, so a client could make servers look broken.
    pub fn is_server_failure(self) -> bool {
        matches!(self.0, 2 | 13 | 14 | 15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_prefix_has_a_flag_and_a_length() {
        let prefix = |bytes: &[u8]| Prefix::read(bytes).map(|prefix| (prefix.is_compressed, prefix.end()));
        assert_eq!(prefix(&[0, 0, 0, 1, 2, 9]), Some((false, 263)));
        assert_eq!(prefix(&[1, 0, 0, 0, 0]), Some((true, 5)));
        assert_eq!(prefix(&[0, 0, 0, 1]), None);
        assert_eq!(prefix(&[0xff; 5]), Some((true, 0xffff_ffff_usize.saturating_add(5))));
    }

    #[test]
    fn grpc_has_the_content_types_that_envoy_takes_for_it() {
        for (content_type, is_grpc_type, is_stream) in [
            ("application/grpc", true, true),
            ("application/grpc+proto", true, true),
            ("Application/gRPC", false, true),
            ("application/grpc;charset=utf-8", false, true),
            ("application/grpc-web", false, true),
            ("application/json", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), is_grpc_type, "{content_type}");
            assert_eq!(has_messages(content_type.as_bytes()), is_stream, "{content_type}");
        }
    }

    #[test]
    fn a_server_fails_by_its_own_statuses_only() {
        let failures: Vec<u8> = (0..=16).filter(|&code| Status(code).is_server_failure()).collect();
        assert_eq!(failures, [2, 13, 14, 15]);
        assert_eq!(Status::read(b"14"), Some(Status::UNAVAILABLE));
        for value in [&b""[..], b"-1", b"x", b"999", b"\xff"] {
            assert_eq!(Status::read(value), None);
        }
    }
}
