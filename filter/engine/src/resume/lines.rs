//! A stream of events, cut at their ends.

use core::fmt::Display;

/// The marker of the end of a stream.
pub(super) const DONE: &str = "[DONE]";

/// The events of a response whose chunks end anywhere.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The beginning of an event whose end has not arrived.
    partial: Vec<u8>,
    /// Bytes of it that have no end of the event.
    searched: usize,
}

impl Events {
    /// Calls `each` with every event that is complete now, with the empty line behind it.
    pub(super) fn push(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8])) {
        let mut joined = core::mem::take(&mut self.partial);
        // A chunk nearly always has whole events.
        let mut rest = if joined.is_empty() {
            chunk
        } else {
            joined.extend_from_slice(chunk);
            joined.as_slice()
        };
        let mut from = self.searched;
        while let Some(length) = length_of_event(rest, from) {
            let (event, later) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            each(event);
            rest = later;
            from = 0;
        }
        // The end of an event has at most four bytes.
        self.searched = rest.len().saturating_sub(3);
        // A long event in short chunks is not copied at each of them.
        self.partial = if rest.len() == joined.len() { joined } else { rest.to_vec() };
    }

    /// The bytes of the event that is not complete.
    pub(super) fn partial(&self) -> usize {
        self.partial.len()
    }

    /// Takes the bytes of the event that is not complete.
    pub(super) fn take_partial(&mut self) -> Vec<u8> {
        self.searched = 0;
        core::mem::take(&mut self.partial)
    }
}

/// The length of the first event with the empty line that ends it. No end begins before `from`.
fn length_of_event(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let end_of_line = from + bytes.get(from..)?.iter().position(|&byte| byte == b'\n')? + 1;
        match bytes.get(end_of_line..)? {
            [b'\n', ..] => return Some(end_of_line + 1),
            [b'\r', b'\n', ..] => return Some(end_of_line + 2),
            _ => from = end_of_line,
        }
    }
}

/// The data of an event. `None` if it has none, such as a comment. Of several lines of data only the first is
/// read: no server of this API sends more.
pub(super) fn data(event: &[u8]) -> Option<&[u8]> {
    event.split(|&byte| byte == b'\n').find_map(|line| Some(line.strip_prefix(b"data:")?.trim_ascii()))
}

/// An event with this data.
pub(super) fn event(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// An event of this type with this data.
pub(super) fn typed_event(kind: &str, data: &impl Display) -> Vec<u8> {
    format!("event: {kind}\ndata: {data}\n\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> (Vec<String>, usize) {
        let mut events = Events::default();
        let mut all = Vec::new();
        for chunk in chunks {
            events.push(chunk, |event| all.push(String::from_utf8(event.to_vec()).unwrap()));
        }
        (all, events.partial())
    }

    #[test]
    fn events_end_at_an_empty_line_however_they_are_cut() {
        let stream: &[u8] = b"data: a\n\n: ping\r\n\r\nevent: x\ndata: b\n\ndata: rest\n";
        let whole = split(&[stream]);
        assert_eq!(whole.0, ["data: a\n\n", ": ping\r\n\r\n", "event: x\ndata: b\n\n"]);
        assert_eq!(whole.1, b"data: rest\n".len());
        for at in 0..=stream.len() {
            let (first, second) = stream.split_at(at);
            assert_eq!(split(&[first, second]), whole, "{at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(split(&bytes), whole);
    }

    #[test]
    fn the_data_of_an_event_may_follow_other_lines() {
        for (text, expected) in [
            ("data: {}\n\n", Some("{}")),
            ("data:{}\r\n\r\n", Some("{}")),
            ("event: x\ndata: 1\ndata: 2\n\n", Some("1")),
            (": data: 1\n\n", None),
            ("\n\n", None),
        ] {
            let expected = expected.map(str::as_bytes);
            assert_eq!(data(text.as_bytes()), expected, "{text:?}");
        }
    }
}
