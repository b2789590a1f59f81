//! Usage, output and errors in the messages of a gRPC response.

use super::scanner::{Found, Scanner};
use crate::grpc::{PREFIX, Prefix};
use crate::protobuf::{Field, FieldUse, MessageScanner, Visitor};
use crate::request::body::ResponseMessage;
use crate::response::usage::{MAX_TOKENS, Usage};

/// The messages of a response as far as they have come. Compressed ones are passed over.
#[derive(Clone, Debug)]
pub(super) struct MessageReader {
    /// The prefix of the message as far as it has come.
    prefix: Vec<u8>,
    /// Bytes of the message that are to come.
    left: usize,
    is_compressed: bool,
    scanner: MessageScanner,
    counts: MessageUsage,
}

/// The usage in one message.
#[derive(Clone, Debug)]
struct MessageUsage {
    message: ResponseMessage,
    usage: Usage,
    json: Scanner,
}

impl MessageReader {
    pub(super) fn new(message: ResponseMessage) -> Self {
        Self {
            prefix: Vec::new(),
            left: 0,
            is_compressed: false,
            scanner: MessageScanner::default(),
            counts: MessageUsage { message, usage: Usage::default(), json: Scanner::default() },
        }
    }

    /// Reads the next chunk, and merges the usage and the findings of each message that ends in it.
    pub(super) fn read(&mut self, mut chunk: &[u8], usage: &mut Usage, found: &mut Found) {
        while !chunk.is_empty() {
            if self.prefix.len() < PREFIX {
                let missing = PREFIX - self.prefix.len();
                let (part, rest) = chunk.split_at_checked(missing).unwrap_or((chunk, &[]));
                self.prefix.extend_from_slice(part);
                chunk = rest;
                let Some(prefix) = Prefix::read(&self.prefix) else { return };
                (self.left, self.is_compressed) = (prefix.length, prefix.is_compressed);
            }
            let (part, rest) = chunk.split_at_checked(self.left).unwrap_or((chunk, &[]));
            if !self.is_compressed {
                self.scanner.read(part, &mut self.counts);
            }
            self.left -= part.len();
            chunk = rest;
            if self.left == 0 {
                let (of_message, mut found_in_message) = self.counts.end();
                usage.merge(of_message);
                // The content of a compressed message is not known, and each message of a model has output.
                found_in_message.has_output |= self.is_compressed || self.counts.is_output();
                found.merge(found_in_message);
                self.scanner = MessageScanner::default();
                self.prefix.clear();
            }
        }
    }
}

impl MessageUsage {
    /// Ends the message, and returns its usage and the findings in its JSON.
    fn end(&mut self) -> (Usage, Found) {
        let (usage, found) = core::mem::take(&mut self.json).finish();
        if let Some(usage) = usage {
            self.usage.merge(usage);
        }
        (core::mem::take(&mut self.usage), found)
    }

    /// Whether each message is output of the model, without regard to JSON in it.
    fn is_output(&self) -> bool {
        match self.message {
            ResponseMessage::Generate | ResponseMessage::Embed => true,
            ResponseMessage::HttpBody => false,
        }
    }
}

impl Visitor for MessageUsage {
    fn field_use(&self, number: u32) -> FieldUse {
        match (self.message, number) {
            (ResponseMessage::Generate, 1 | 2) => FieldUse::Message,
            (ResponseMessage::HttpBody, 2) => FieldUse::Bytes,
            (ResponseMessage::Generate | ResponseMessage::Embed | ResponseMessage::HttpBody, _) => {
                FieldUse::Pass
            }
        }
    }

    fn number(&mut self, field: Field, value: u64) {
        if value > MAX_TOKENS {
            return;
        }
        let Usage { input, output, cached, .. } = &mut self.usage;
        match (self.message, field.parent, field.number) {
            (ResponseMessage::Generate, 1, 2)
            | (ResponseMessage::Generate, 2, 3)
            | (ResponseMessage::Embed, 0, 2) => {
                *input = value;
            }
            (ResponseMessage::Generate, 1, 3) | (ResponseMessage::Generate, 2, 4) => *output = value,
            (ResponseMessage::Generate, 1, 4) | (ResponseMessage::Generate, 2, 5) => *cached = Some(value),
            _ => {}
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.json.read(bytes);
    }
}
