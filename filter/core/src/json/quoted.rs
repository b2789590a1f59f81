//! Text as a JSON string.

/// The text between quotes, with what JSON forbids inside them escaped and nothing else.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut json = Vec::with_capacity(text.len() + 2);
    json.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => json.extend([b'\\', byte]),
            0..=0x1f => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                json.extend([b'\\', b'u', b'0', b'0', high, low]);
            }
            _ => json.push(byte),
        }
    }
    json.push(b'"');
    json
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test;

    #[test]
    fn only_what_json_forbids_is_escaped() {
        for (text, json) in [
            ("", r#""""#),
            ("meta-llama/Llama-3.1", r#""meta-llama/Llama-3.1""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("\n\u{0}\u{1f}", r#""\u000a\u0000\u001f""#),
            ("<é\u{2028}\u{7f}>", "\"<é\u{2028}\u{7f}>\""),
        ] {
            assert_eq!(String::from_utf8(quoted(text)).unwrap(), json);
        }
    }

    proptest! {
        #[test]
        fn every_text_is_read_back_as_it_was(letters in proptest::collection::vec(any::<char>(), 0..20)) {
            let text: String = letters.into_iter().collect();
            let read: String = serde_json::from_slice(&quoted(&text)).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
