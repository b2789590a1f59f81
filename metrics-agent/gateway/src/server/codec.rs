//! The codec of the hooks: prost's, for messages whose fields take a small multiple of their bytes in memory.

use core::fmt;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::wire;

/// Maximum number of fields of a message, without those of nested messages: everything of one Gateway is one
/// message. A field that is decoded takes 32 bytes, and may have two on the wire.
const MAX_FIELDS: usize = 100_000;

/// Prost's codec with a limit on the fields of each message that it decodes.
#[derive(Clone)]
pub struct BoundedCodec<T, U>(ProstCodec<T, U>);

/// The decoder of [`BoundedCodec`].
#[derive(Clone, Debug, Default)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<T, U> fmt::Debug for BoundedCodec<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundedCodec")
    }
}

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(ProstCodec::new())
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        self.0.encoder()
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder(self.0.decoder())
    }
}

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        check(source.chunk())?;
        self.0.decode(source)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Refuses a message with too many fields. A message that is not valid is left to the decoder.
fn check(message: &[u8]) -> Result<(), Status> {
    let fields = wire::WireMessage::read(message).map_or(0, |message| message.fields().count());
    if fields > MAX_FIELDS {
        return Err(Status::resource_exhausted(format!(
            "the message has {fields} fields; at most {MAX_FIELDS} are allowed"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_have_a_hundred_thousand_fields_however_long_it_is() {
        let empty = [4 << 3 | 2, 0];
        assert!(check(&empty.repeat(MAX_FIELDS)).is_ok());
        let refused = check(&empty.repeat(MAX_FIELDS + 1)).unwrap_err();
        assert!(refused.message().contains("100001 fields; at most 100000"), "{refused}");
        let long = wire::Builder::default().bytes(4, vec![0; 1 << 20]);
        assert!(check(long.as_ref()).is_ok() && check(b"no message").is_ok());
    }
}
