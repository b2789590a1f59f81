//! Events of a response that differ in their texts only, as nearly all of them do.

use super::event::Event;

/// An event that has text and nothing else that matters, without the text.
#[derive(Debug)]
pub(super) struct PlainEvent {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl PlainEvent {
    /// The event of these bytes, in which `read` was read; `None` if it has more than text, or its text is
    /// written with escapes.
    pub(super) fn of(event: &[u8], read: &Event<'_>) -> Option<Self> {
        let text = read.plain_text()?;
        let from = text.as_ptr().addr().checked_sub(event.as_ptr().addr())?;
        let before = event.get(..from)?.to_vec();
        let after = event.get(from + text.len()..)?.to_vec();
        Some(Self { before, after })
    }

    /// The text of an event that is equal but for its text; `None` for any other event, and for one whose
    /// text is empty or written with escapes.
    pub(super) fn text_of<'e>(&self, event: &'e [u8]) -> Option<&'e str> {
        let text = event.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let is_plain = |&byte: &u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        core::str::from_utf8(text)
            .ok()
            .filter(|text| !text.is_empty() && text.as_bytes().iter().all(is_plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_may_differ() {
        let event = |id: &str, text: &str, rest: &str| {
            format!(
                "data: {{\"id\":\"{id}\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}{rest}}}]}}\n\n"
            )
            .into_bytes()
        };
        let plain = |event: &[u8]| {
            let data = super::super::lines::data(event).unwrap();
            PlainEvent::of(event, &Event::read(data).unwrap())
        };
        let first = plain(&event("a", "one", "")).unwrap();
        assert_eq!(first.text_of(&event("a", "two \u{fc}", "")), Some("two \u{fc}"));
        for (id, text, rest) in [
            ("a", "", ""),
            ("b", "two", ""),
            ("a", "\\n", ""),
            ("a", "x\",\"tool_calls\":[{}],\"y\":\"", ""),
            ("a", "two", ",\"finish_reason\":\"stop\""),
        ] {
            assert_eq!(first.text_of(&event(id, text, rest)), None, "{id} {text} {rest}");
        }
        let both = [event("a", "x", ""), event("a", "y", "")].concat();
        assert_eq!(first.text_of(&both), None, "two events");
        let cut = event("a", "x", "");
        assert_eq!(first.text_of(&cut[..cut.len() - 1]), None);
        assert_eq!(first.text_of(&[&b"data: "[..], b"\n\n"].concat()), None);
        for (text, rest) in [
            ("one", ",\"finish_reason\":\"stop\""),
            ("", ""),
            ("\\n", ""),
            ("x", ",\"a\":1}],\"usage\":{},\"b\":[{\"c\":1"),
        ] {
            assert!(plain(&event("a", text, rest)).is_none(), "{text} {rest}");
        }
    }
}
