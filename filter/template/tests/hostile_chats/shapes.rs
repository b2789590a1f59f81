//! Chats that are made expensive: of many small values, or of long texts.

use std::fmt::Write as _;

use endpoint_picker_template::ChatApi;

/// A template that prints all of a chat, and reads the content of a message as parts.
pub(crate) const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}{% for c in m.content %}{{ c.text | trim }}{% endfor %}\
    {% for t in m.tool_calls or [] %}{{ t | tojson }}{% endfor %}{{ m.reasoning or m.name }}{% endfor %}\
    {% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for d in documents or [] %}{{ d.text }}{% endfor %}";

/// A chat of a kind: `first`, `part` again and again, and `last`.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) api: ChatApi,
    first: &'static str,
    part: &'static str,
    last: &'static str,
}

impl Shape {
    const fn new(name: &'static str, api: ChatApi, [first, part, last]: [&'static str; 3]) -> Self {
        Self { name, api, first, part, last }
    }

    /// A body with about this many bytes of parts. `#` in a part is its number.
    pub(crate) fn body(&self, bytes: usize) -> String {
        let mut body = self.first.to_owned();
        let mut number = 0;
        while body.len() < bytes {
            match self.part.split_once('#') {
                Some((before, after)) => {
                    body.push_str(before);
                    write!(body, "{number:x}").unwrap();
                    body.push_str(after);
                }
                None => body.push_str(self.part),
            }
            number += 1;
        }
        body.push_str(self.last);
        body
    }
}

pub(crate) const SHAPES: [Shape; 33] = {
    use ChatApi::{Completions, Messages, Responses};
    [
        Shape::new(
            "empty calls",
            Completions,
            [r#"{"messages":[{"role":"assistant","tool_calls":["#, "{},", "{}]}]}"],
        ),
        Shape::new(
            "calls",
            Completions,
            [
                r#"{"messages":[{"role":"assistant","tool_calls":["#,
                r#"{"id":"a","function":{"name":"f","arguments":"{}"}},"#,
                "{}]}]}",
            ],
        ),
        Shape::new(
            "calls without a function",
            Completions,
            [r#"{"messages":[{"role":"assistant","tool_calls":["#, r#"{"id":1},"#, "{}]}]}"],
        ),
        Shape::new(
            "arguments of lists",
            Completions,
            [
                r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":["#,
                "[],",
                r#"[]]}"}}]}]}"#,
            ],
        ),
        Shape::new(
            "arguments of objects",
            Completions,
            [
                r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":{"a":["#,
                r#"{"a":1},"#,
                "1]}}}]}]}",
            ],
        ),
        Shape::new("empty documents", Completions, [r#"{"messages":[],"documents":["#, "{},", "{}]}"]),
        Shape::new("documents", Completions, [r#"{"messages":[],"documents":["#, r#"{"text":"a"},"#, "{}]}"]),
        Shape::new("numbers", Completions, [r#"{"messages":[],"documents":["#, "1,", "1]}"]),
        Shape::new("strings", Completions, [r#"{"messages":[],"documents":["#, r#""","#, r#"""]}"#]),
        Shape::new(
            "strings with escapes",
            Completions,
            [r#"{"messages":[],"documents":["#, r#""\n","#, r#"""]}"#],
        ),
        Shape::new(
            "variables",
            Completions,
            [r#"{"messages":[],"chat_template_kwargs":{"#, r##""#":1,"##, r#""z":1}}"#],
        ),
        Shape::new(
            "a variable",
            Completions,
            [r#"{"messages":[],"chat_template_kwargs":{"#, r#""a":1,"#, r#""z":1}}"#],
        ),
        Shape::new(
            "parameters",
            Completions,
            [
                r#"{"messages":[],"tools":[{"function":{"name":"f","parameters":{"#,
                r##""#":1,"##,
                r#""z":1}}}]}"#,
            ],
        ),
        Shape::new(
            "tools",
            Completions,
            [r#"{"messages":[],"tools":["#, r#"{"function":{"name":1}},"#, r#"{"function":{"name":1}}]}"#],
        ),
        Shape::new("messages", Completions, [r#"{"messages":["#, r#"{"role":"u"},"#, r#"{"role":"u"}]}"#]),
        Shape::new(
            "reasoning",
            Completions,
            [r#"{"messages":["#, r#"{"role":"assistant","reasoning":"a"},"#, r#"{"role":"u"}]}"#],
        ),
        Shape::new(
            "parts",
            Completions,
            [r#"{"messages":[{"role":"user","content":["#, r#"{"type":"text","text":"a"},"#, r#"""]}]}"#],
        ),
        Shape::new(
            "strings as parts",
            Completions,
            [r#"{"messages":[{"role":"user","content":["#, r#""","#, r#"""]}]}"#],
        ),
        Shape::new(
            "a text",
            Completions,
            [r#"{"messages":[{"role":"user","content":""#, "The fox jumps. ", r#""}]}"#],
        ),
        Shape::new(
            "a text with escapes",
            Completions,
            [r#"{"messages":[{"role":"user","content":""#, r"a\n", r#""}]}"#],
        ),
        Shape::new(
            "a text as reasoning",
            Completions,
            [r#"{"messages":[{"role":"assistant","reasoning":""#, "The fox jumps. ", r#""}]}"#],
        ),
        Shape::new(
            "members that no template reads",
            Completions,
            [r#"{"messages":[],"metadata":["#, "{},", "1]}"],
        ),
        Shape::new(
            "blocks",
            Messages,
            [
                r#"{"messages":[{"role":"user","content":["#,
                r#"{"type":"text","text":"a"},"#,
                r#"{"type":"text"}]}]}"#,
            ],
        ),
        Shape::new(
            "blocks without text",
            Messages,
            [r#"{"messages":[{"role":"user","content":["#, r#"{"type":"text"},"#, r#"{"type":"text"}]}]}"#],
        ),
        Shape::new(
            "uses of tools",
            Messages,
            [
                r#"{"messages":[{"role":"assistant","content":["#,
                r#"{"type":"tool_use","id":"a","input":{}},"#,
                r#"{"type":"text"}]}]}"#,
            ],
        ),
        Shape::new(
            "results of tools",
            Messages,
            [
                r#"{"messages":[{"role":"user","content":["#,
                r#"{"type":"tool_result"},"#,
                r#"{"type":"text"}]}]}"#,
            ],
        ),
        Shape::new(
            "blocks of a system message",
            Messages,
            [r#"{"messages":[],"system":["#, r#"{"type":"text","text":"a"},"#, r#"{"type":"text"}]}"#],
        ),
        Shape::new(
            "tools of Anthropic's API",
            Messages,
            [
                r#"{"messages":[],"tools":["#,
                r#"{"name":1,"input_schema":{}},"#,
                r#"{"name":1,"input_schema":{}}]}"#,
            ],
        ),
        Shape::new("empty items", Responses, [r#"{"input":["#, "{},", "{}]}"]),
        Shape::new(
            "items",
            Responses,
            [r#"{"input":["#, r#"{"role":"user","content":"a"},"#, r#"{"role":"user"}]}"#],
        ),
        Shape::new(
            "items that are calls",
            Responses,
            [r#"{"input":["#, r#"{"type":"function_call"},"#, r#"{"role":"user"}]}"#],
        ),
        Shape::new(
            "parts of a summary",
            Responses,
            [r#"{"input":[{"type":"reasoning","summary":["#, "{},", "{}]}]}"],
        ),
        Shape::new(
            "tools of responses",
            Responses,
            [r#"{"input":[],"tools":["#, r#"{"type":"function"},"#, r#"{"type":"function"}]}"#],
        ),
    ]
};
