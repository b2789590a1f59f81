//! Texts of chats: the input is a template, a zero byte and the body of a request, or a body for a template
//! with all that templates use.
//!
//! Whatever both are, rendering ends, and a text is not longer than allowed.
#![no_main]

use endpoint_picker_template::{ChatApi, ChatTemplate, normalized};
use libfuzzer_sys::fuzz_target;

const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m.role }}{% for c in m.content %}{{ c.text | trim }}{% endfor %}\
    {% for t in m.tool_calls or [] %}{{ t | tojson(indent=2) }}{% endfor %}{{ m.reasoning or m.name }}{% endfor %}\
    {% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ strftime_now('%d %b %Y') }}";

const MAX_BYTES: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let (template, body) = match input.iter().position(|&byte| byte == 0) {
        Some(zero) => (core::str::from_utf8(&input[..zero]).unwrap_or(TEMPLATE), &input[zero + 1..]),
        None => (TEMPLATE, input),
    };
    let Ok(template) = ChatTemplate::compile(template, "<s>", "</s>") else { return };
    for api in [ChatApi::Completions, ChatApi::Messages, ChatApi::Responses] {
        if let Ok(text) = template.render(api, body, 1_790_000_000, MAX_BYTES) {
            assert!(text.len() <= MAX_BYTES);
            let once = normalized(text);
            assert_eq!(normalized(once.clone()), once);
        }
    }
});
