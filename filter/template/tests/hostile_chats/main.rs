//! Memory that hostile chats take: at most four times the body, or what a body of [`SMALL`] bytes may take,
//! and four times the text that is rendered, which grows by doubling and is copied where a template prints
//! JSON.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod shapes;

use endpoint_picker_template::{ChatApi, ChatTemplate, Unrendered};
use peak_alloc::PeakAlloc;
use shapes::{SHAPES, TEMPLATE};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes of a body that take as much memory as a smaller one may take.
const SMALL: usize = 1 << 20;

const MAX_TEXT: usize = 128 << 20;

/// Places of a chat where any value may be: the texts before and behind it, and whether it is within a
/// string.
const PLACES: [(ChatApi, &str, &str, bool); 7] = [
    (ChatApi::Completions, r#"{"messages":[],"documents":"#, "}", false),
    (ChatApi::Completions, r#"{"messages":[],"chat_template_kwargs":{"a":"#, "}}", false),
    (ChatApi::Completions, r#"{"messages":[],"tools":[{"function":{"name":"f","parameters":"#, "}}]}", false),
    (ChatApi::Completions, r#"{"messages":[{"role":"assistant","tool_calls":"#, "}]}", false),
    (
        ChatApi::Completions,
        r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":"#,
        r#"}"}}]}]}"#,
        true,
    ),
    (
        ChatApi::Messages,
        r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","input":"#,
        "}]}]}",
        false,
    ),
    (ChatApi::Responses, r#"{"input":[],"tools":[{"type":"function","parameters":"#, "}]}", false),
];

/// Numbers that are drawn from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    /// A value of `depth` levels at most.
    fn value(&mut self, depth: usize) -> String {
        let many = self.below(4);
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => "1".to_owned(),
            1 => "-1.5e300".to_owned(),
            2 => "null".to_owned(),
            3 => format!("\"{}\"", "a".repeat(self.below(30))),
            4 => r#""\n""#.to_owned(),
            5 => self.list(many, depth),
            _ => {
                let members = (0..many).map(|key| format!(r#""{key}":{}"#, self.value(depth - 1)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
        }
    }

    fn list(&mut self, many: usize, depth: usize) -> String {
        let items = (0..many).map(|_| self.value(depth - 1));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    }

    /// A chat of about this many bytes, in which a list of a few values is repeated.
    fn chat(&mut self, bytes: usize) -> (ChatApi, String) {
        let (api, before, after, is_text) = PLACES[self.below(PLACES.len())];
        let many = 1 + self.below(3);
        let items = self.list(many, 4);
        let items = items.strip_prefix('[').and_then(|items| items.strip_suffix(']')).unwrap();
        let list = format!("[{}1]", format!("{items},").repeat(bytes / (items.len() + 1)));
        let list = if is_text { list.replace('\\', r"\\").replace('"', "\\\"") } else { list };
        (api, format!("{before}{list}{after}"))
    }
}

// One test, because the memory is the whole process's.
#[test]
fn a_chat_takes_at_most_four_times_its_bytes() {
    let template = ChatTemplate::compile(TEMPLATE, "", "").unwrap();
    let (mut wrong, mut texts) = (Vec::new(), 0);
    // Whether there is room for the chat. Blanks behind the body make room for more values.
    let mut measure = |name: &str, api: ChatApi, body: &str, bytes: usize| {
        let body = body.to_owned() + &" ".repeat(bytes.saturating_sub(body.len()));
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let rendered = template.render(api, body.as_bytes(), 0, MAX_TEXT);
        let taken = MEMORY.peak_usage() - before;
        texts += usize::from(rendered.is_ok());
        let has_room = !matches!(rendered, Err(Unrendered::Large));
        let text = rendered.as_ref().map_or(0, String::len);
        if taken > 4 * (body.len().max(SMALL) + text) {
            wrong.push(format!("{name} in {} bytes: {taken} bytes, {:?}", body.len(), rendered.err()));
        }
        has_room
    };
    for shape in &SHAPES {
        measure(shape.name, shape.api, &shape.body(2 * SMALL), 0);
        if measure(shape.name, shape.api, &shape.body(SMALL), 0) {
            continue;
        }
        // The number of parts for which there is room, by bisection.
        let (mut low, mut high) = (0, SMALL);
        while high - low > SMALL >> 7 {
            let bytes = usize::midpoint(low, high);
            let has_room = measure(shape.name, shape.api, &shape.body(bytes), SMALL);
            (low, high) = if has_room { (bytes, high) } else { (low, bytes) };
        }
    }
    for seed in 1..=40 {
        let mut draws = Draws(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let bytes = SMALL >> draws.below(8);
        let (api, body) = draws.chat(bytes);
        measure(&format!("chat of seed {seed}"), api, &body, SMALL);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(texts > 40, "{texts} chats have a text");
}
