//! The answer to a routed request, on its way back.

use core::time::Duration;

use endpoint_picker::restore::Restore;

use crate::host;

/// What an answer needs on its way to the client.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// Headers that tell what was decided.
    pub(crate) headers: Vec<(String, String)>,
    /// Puts the client's model back in the place of the one that served.
    pub(crate) restore: Option<Restore>,
    /// When its endpoint was chosen, until the first byte of its body has come.
    pub(crate) awaited_since: Option<Duration>,
}

impl Response {
    /// Makes the answer's headers fit what will come after them. `encoding` is its `content-encoding`.
    pub(crate) fn begin(&mut self, encoding: Option<&[u8]>, has_body: bool) -> host::Result<()> {
        for (name, value) in self.headers.drain(..) {
            host::set_response_header(&name, &value)?;
        }
        if self.restore.is_some() {
            if has_body && encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
                // Known only when all of it has gone out.
                host::remove_response_header("content-length")?;
            } else {
                self.restore = None;
            }
        }
        Ok(())
    }

    /// A part of the answer has come.
    pub(crate) fn pass(&mut self, is_last: bool) {
        let Some(restore) = &mut self.restore else { return };
        let sent = host::response_chunk().and_then(|chunk| {
            restore.chunk(&chunk, is_last).map_or(Ok(()), |bytes| host::set_response_chunk(&bytes))
        });
        if let Err(error) = sent {
            log::error!("{error}; a part of the answer goes on as it is");
        }
    }

    /// The answer ends with trailers.
    pub(crate) fn end_with_trailers(&self) {
        if self.restore.as_ref().is_some_and(Restore::is_holding) {
            // Nothing can be sent any more when trailers have come.
            log::warn!("an answer ended within the name of its model; its last bytes are lost");
        }
    }
}
