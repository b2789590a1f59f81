//! ZMTP 3.0, the protocol of ZeroMQ over TCP, as far as a subscriber needs it: the greeting, the READY
//! command, and messages of frames.
//!
//! Source: <https://rfc.zeromq.org/spec/23/>. Security is NULL. A peer of a later version falls back to 3.0.

use core::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// Maximum number of bytes of a message, all its frames together. One step of a model server has far less: a
/// million tokens have 5 MB.
pub const MAX_MESSAGE: usize = 8 * 1024 * 1024;

/// Maximum number of frames of a message; those with events have three or four.
const MAX_FRAMES: usize = 16;

/// Maximum number of bytes of a peer's text in an error.
const MAX_TEXT: usize = 255;

/// Length of a greeting.
const GREETING_LENGTH: usize = 64;

/// Flags in the first byte of a frame.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The kind of a socket, as its peer reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// Receives what a publisher sends.
    Sub,
    /// Sends requests to a router and receives any number of responses.
    Dealer,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Self::Sub => "SUB",
            Self::Dealer => "DEALER",
        }
    }

    /// Whether a peer of this kind is expected.
    fn fits(self, peer: &[u8]) -> bool {
        match self {
            Self::Sub => matches!(peer, b"PUB" | b"XPUB"),
            Self::Dealer => matches!(peer, b"ROUTER" | b"DEALER" | b"REP"),
        }
    }
}

/// A part of the bytes that a peer has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedPart {
    /// The first bytes of a connection.
    Greeting,
    /// A command, with its name.
    Command(Bytes),
    /// The frames of a message.
    Message(Vec<Bytes>),
}

/// Why the bytes of a peer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZmtpError {
    /// The greeting is not one of ZMTP 3.
    NotZmtp,
    /// The peer requires this mechanism of authentication.
    Mechanism(String),
    /// A message is longer than [`MAX_MESSAGE`] bytes.
    TooLong,
    /// A message has more than [`MAX_FRAMES`] frames.
    TooManyFrames,
    /// A message came before the end of the handshake, or the READY command is malformed.
    Handshake,
    /// The peer's socket is of this kind.
    WrongSocket(String),
    /// The peer refuses the connection for this reason.
    Refused(String),
}

impl fmt::Display for ZmtpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotZmtp => write!(f, "the port does not speak ZMTP 3, the protocol of ZeroMQ"),
            Self::Mechanism(name) => write!(f, "the publisher requires {name:?}; supported is NULL"),
            Self::TooLong => write!(f, "a message has more than {MAX_MESSAGE} bytes"),
            Self::TooManyFrames => write!(f, "a message has more than {MAX_FRAMES} frames"),
            Self::Handshake => write!(f, "the handshake of ZMTP is malformed"),
            Self::WrongSocket(name) => write!(f, "the port is a socket of kind {name:?}"),
            Self::Refused(reason) => write!(f, "the publisher refuses the connection: {reason:?}"),
        }
    }
}

impl core::error::Error for ZmtpError {}

/// Divides the bytes of a peer into greeting, commands and messages. It holds at most one message and the
/// bytes of one read.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes that were received and not yet divided.
    pub received: BytesMut,
    has_greeting: bool,
    frames: Vec<Bytes>,
    /// Bytes of `frames`.
    length: usize,
}

impl Decoder {
    /// Bytes that it holds.
    pub(super) fn held(&self) -> usize {
        self.received.len() + self.length
    }

    /// The next part; `None`: more bytes are needed. After an error the connection must be closed.
    pub fn next_part(&mut self) -> Result<Option<ReceivedPart>, ZmtpError> {
        if !self.has_greeting {
            return self.greeting();
        }
        loop {
            let Some((flags, head, length)) = self.head()? else { return Ok(None) };
            if self.received.len() - head < length {
                return Ok(None);
            }
            self.received.advance(head);
            let body = self.received.split_to(length).freeze();
            if flags & COMMAND != 0 {
                return Ok(Some(ReceivedPart::Command(body)));
            }
            if self.frames.len() == MAX_FRAMES {
                return Err(ZmtpError::TooManyFrames);
            }
            self.length += length;
            self.frames.push(body);
            if flags & MORE == 0 {
                self.length = 0;
                return Ok(Some(ReceivedPart::Message(core::mem::take(&mut self.frames))));
            }
        }
    }

    fn greeting(&mut self) -> Result<Option<ReceivedPart>, ZmtpError> {
        let [first, .., marker] = self.received.get(..10).unwrap_or(&[0xff, 0x7f]) else { return Ok(None) };
        if *first != 0xff || marker & 1 == 0 {
            return Err(ZmtpError::NotZmtp);
        }
        let Some(greeting) = self.received.get(..GREETING_LENGTH) else { return Ok(None) };
        if greeting.get(10).is_none_or(|major| *major < 3) {
            return Err(ZmtpError::NotZmtp);
        }
        let mechanism = greeting.get(12..32).unwrap_or_default();
        let mechanism = String::from_utf8_lossy(mechanism).trim_end_matches('\0').to_owned();
        if mechanism != "NULL" {
            return Err(ZmtpError::Mechanism(mechanism));
        }
        self.received.advance(GREETING_LENGTH);
        self.has_greeting = true;
        Ok(Some(ReceivedPart::Greeting))
    }

    /// Flags of the next frame, the length of its head, and that of its body.
    fn head(&self) -> Result<Option<(u8, usize, usize)>, ZmtpError> {
        let Some(flags) = self.received.first() else { return Ok(None) };
        let (head, length) = if flags & LONG == 0 {
            (2, self.received.get(1).map(|length| u64::from(*length)))
        } else {
            let bytes = self.received.get(1..).and_then(<[u8]>::first_chunk::<8>);
            (9, bytes.map(|bytes| u64::from_be_bytes(*bytes)))
        };
        let Some(length) = length else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| ZmtpError::TooLong)?;
        let is_allowed = length.checked_add(self.length).is_some_and(|sum| sum <= MAX_MESSAGE);
        if is_allowed { Ok(Some((*flags, head, length))) } else { Err(ZmtpError::TooLong) }
    }
}

/// The greeting of a client.
pub(super) fn greeting() -> [u8; GREETING_LENGTH] {
    let mut greeting = [0; GREETING_LENGTH];
    for (at, byte) in [(0, 0xff), (9, 0x7f), (10, 3)] {
        greeting[at] = byte;
    }
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// The READY command of a socket.
pub(super) fn ready(socket: Socket) -> Vec<u8> {
    let name = socket.name();
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    body.extend(u8::try_from(name.len()));
    body.extend_from_slice(name.as_bytes());
    frame(COMMAND, &body)
}

/// A message of these frames.
pub(super) fn message(frames: &[&[u8]]) -> Vec<u8> {
    let last = frames.len().saturating_sub(1);
    frames.iter().enumerate().flat_map(|(at, body)| frame(if at < last { MORE } else { 0 }, body)).collect()
}

/// The message with which a subscriber asks for all topics.
pub(super) fn subscription() -> Vec<u8> {
    message(&[&[1]])
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(body.len()) {
        Ok(length) => vec![flags, length],
        Err(_) => [&[flags | LONG][..], &(body.len() as u64).to_be_bytes()].concat(),
    };
    bytes.extend_from_slice(body);
    bytes
}

/// The beginning of a peer's text, which may be as long as a message.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..MAX_TEXT).unwrap_or(bytes)).into_owned()
}

/// Checks the READY command of a peer of this socket.
pub(super) fn check_ready(socket: Socket, command: &[u8]) -> Result<(), ZmtpError> {
    if let Some(reason) = command.strip_prefix(b"\x05ERROR") {
        return Err(ZmtpError::Refused(text(reason.get(1..).unwrap_or_default())));
    }
    let mut rest = command.strip_prefix(b"\x05READY").ok_or(ZmtpError::Handshake)?;
    while let Some((length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked((*length).into()).ok_or(ZmtpError::Handshake)?;
        let (length, after) = after.split_first_chunk::<4>().ok_or(ZmtpError::Handshake)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| ZmtpError::Handshake)?;
        let (value, after) = after.split_at_checked(length).ok_or(ZmtpError::Handshake)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return if socket.fits(value) { Ok(()) } else { Err(ZmtpError::WrongSocket(text(value))) };
        }
        rest = after;
    }
    Err(ZmtpError::Handshake)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(bytes: &[u8]) -> Decoder {
        Decoder { received: [&greeting()[..], bytes].concat().as_slice().into(), ..Decoder::default() }
    }

    /// All parts of these bytes after a greeting, received in chunks of this length.
    fn parts(bytes: &[u8], chunk: usize) -> Result<Vec<ReceivedPart>, ZmtpError> {
        let (mut decoder, mut parts) = (Decoder::default(), Vec::new());
        for chunk in [&greeting()[..], bytes].concat().chunks(chunk) {
            decoder.received.extend_from_slice(chunk);
            while let Some(part) = decoder.next_part()? {
                parts.push(part);
            }
        }
        Ok(parts)
    }

    #[test]
    fn parts_do_not_depend_on_how_the_bytes_arrive() {
        let long = vec![7; 300];
        let bytes = [ready(Socket::Sub), message(&[b"topic", &[0; 8], &long]), message(&[b""])].concat();
        for chunk in [1, 7, 64, 1000] {
            let parts = parts(&bytes, chunk).unwrap();
            let [
                ReceivedPart::Greeting,
                ReceivedPart::Command(_),
                ReceivedPart::Message(first),
                ReceivedPart::Message(second),
            ] = &parts[..]
            else {
                panic!("{parts:?}")
            };
            assert_eq!(first.iter().map(Bytes::len).collect::<Vec<_>>(), [5, 8, 300]);
            assert_eq!(*second, [Bytes::new()]);
        }
    }

    #[test]
    fn announced_lengths_beyond_the_limit_are_refused_before_their_bytes_arrive() {
        let announced = |length: u64| [&[LONG][..], &length.to_be_bytes()].concat();
        for length in [MAX_MESSAGE as u64 + 1, 1 << 46, u64::MAX] {
            let mut decoder = decoder(&announced(length));
            assert_eq!(decoder.next_part(), Ok(Some(ReceivedPart::Greeting)));
            assert_eq!(decoder.next_part(), Err(ZmtpError::TooLong));
        }
        let mut decoder = decoder(&announced(MAX_MESSAGE as u64));
        decoder.next_part().unwrap();
        assert_eq!(decoder.next_part(), Ok(None));
        // The limit holds for all frames together.
        let many = [frame(MORE, &[0; 200]), announced(MAX_MESSAGE as u64 - 199)].concat();
        assert_eq!(parts(&many, 9999), Err(ZmtpError::TooLong));
        assert_eq!(parts(&[MORE, 0].repeat(MAX_FRAMES + 1), 9999), Err(ZmtpError::TooManyFrames));
    }

    #[test]
    fn other_protocols_are_refused_by_their_first_bytes() {
        let mut decoder = Decoder { received: b"HTTP/1.1 400"[..].into(), ..Decoder::default() };
        assert_eq!(decoder.next_part(), Err(ZmtpError::NotZmtp));
        let mut old = greeting();
        old[10] = 1;
        let mut decoder = Decoder { received: old[..].into(), ..Decoder::default() };
        assert_eq!(decoder.next_part(), Err(ZmtpError::NotZmtp));
        let mut curve = greeting();
        curve[12..17].copy_from_slice(b"CURVE");
        let mut decoder = Decoder { received: curve[..].into(), ..Decoder::default() };
        assert_eq!(decoder.next_part(), Err(ZmtpError::Mechanism("CURVE".to_owned())));
    }

    #[test]
    fn a_peer_must_be_a_socket_that_fits() {
        let publisher = b"\x05READY\x08Identity\0\0\0\0\x0bSocket-Type\0\0\0\x03PUB";
        assert_eq!(check_ready(Socket::Sub, publisher), Ok(()));
        assert_eq!(check_ready(Socket::Dealer, publisher), Err(ZmtpError::WrongSocket("PUB".to_owned())));
        assert_eq!(check_ready(Socket::Sub, b"\x05READY"), Err(ZmtpError::Handshake));
        assert_eq!(
            check_ready(Socket::Sub, b"\x05READY\x0bSocket-Type\0\0\0\x09PUB"),
            Err(ZmtpError::Handshake)
        );
        assert_eq!(check_ready(Socket::Sub, b"\x05ERROR\x02no"), Err(ZmtpError::Refused("no".to_owned())));
        let long = [&b"\x05ERROR\xff"[..], &[b'x'; 9999]].concat();
        assert_eq!(check_ready(Socket::Sub, &long), Err(ZmtpError::Refused("x".repeat(MAX_TEXT))));
    }
}
