//! Texts of chats, compared with those that Jinja and vLLM make.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::fs;

use endpoint_picker_template::{
    ChatApi, ChatTemplate, MAX_TEMPLATE_BYTES, TemplateError, Unrendered, normalized,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

const MAX: usize = 1 << 20;

fn compile(template: &str) -> ChatTemplate {
    ChatTemplate::compile(template, "<s>", "</s>").unwrap()
}

fn render(template: &str, body: &Value) -> Result<String, Unrendered> {
    compile(template).render(ChatApi::Completions, body.to_string().as_bytes(), 0, MAX)
}

#[derive(Deserialize)]
struct Recorded {
    now: i64,
    templates: BTreeMap<String, RecordedTemplate>,
}

#[derive(Deserialize)]
struct RecordedTemplate {
    /// The text of each body; `None`: the template refuses it.
    texts: Vec<Option<String>>,
}

#[derive(Deserialize)]
struct RecordedBody {
    api: String,
    /// As text, because templates print members in their order.
    body: Box<RawValue>,
}

/// The texts were recorded by `recorded/record.py`.
#[test]
fn texts_are_those_of_vllm() {
    let recorded: Recorded = serde_json::from_str(include_str!("recorded/rendered.json")).unwrap();
    let bodies: Vec<RecordedBody> = serde_json::from_str(include_str!("recorded/bodies.json")).unwrap();
    let mut compared = 0;
    for (name, RecordedTemplate { texts }) in recorded.templates {
        let file = format!("{}/tests/recorded/templates/{name}.jinja", env!("CARGO_MANIFEST_DIR"));
        let template = compile(&fs::read_to_string(file).unwrap());
        assert_eq!(texts.len(), bodies.len());
        for (RecordedBody { api, body }, expected) in bodies.iter().zip(texts) {
            let api = match api.as_str() {
                "chat" => ChatApi::Completions,
                "messages" => ChatApi::Messages,
                "responses" => ChatApi::Responses,
                api => panic!("{api}"),
            };
            let text = template.render(api, body.get().as_bytes(), recorded.now, MAX);
            match expected {
                // Python has another form of a small number that a template makes a string.
                Some(expected) if name == "xml" && body.get().contains("1e-05") => {
                    assert_eq!(text, Ok(expected.replace("1e-05", "0.00001")), "{body}");
                }
                Some(expected) => assert_eq!(text.as_deref(), Ok(&*expected), "{name}: {body}"),
                None => assert!(matches!(text, Err(Unrendered::Template(_))), "{name}: {body}: {text:?}"),
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 10 * bodies.len());
}

#[test]
fn bodies_without_a_text_are_refused() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let image = json!([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:,"}}]);
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    assert_eq!(render(template, &user(image)), Err(Unrendered::Content));
    assert_eq!(render(template, &user(json!("x"))), Ok("x".to_owned()));
    for field in ["chat_template", "continue_final_message"] {
        let mut body = user(json!("x"));
        body[field] = if field == "chat_template" { json!("{{ 1 }}") } else { json!(true) };
        assert_eq!(render(template, &body), Err(Unrendered::Unsupported(field)));
    }
    for body in [json!({}), json!([]), json!({"messages": 1}), user(json!(7)), user(json!([7]))] {
        assert!(matches!(render(template, &body), Err(Unrendered::Body(_))), "{body}");
    }
    let unsupported = |api: ChatApi, body: Value| {
        matches!(
            compile(template).render(api, body.to_string().as_bytes(), 0, MAX),
            Err(Unrendered::Unsupported(_) | Unrendered::Content)
        )
    };
    for body in [
        json!({"messages": [{"role": "system", "content": [{"type": "tool_removal"}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]}),
        json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]}),
    ] {
        assert!(unsupported(ChatApi::Messages, body.clone()), "{body}");
    }
    for body in [
        json!({"input": "x", "previous_response_id": "r"}),
        json!({"input": [{"type": "item_reference", "id": "r"}]}),
        json!({"input": [{"type": "reasoning", "encrypted_content": "x"}]}),
        json!({"input": [{"role": "assistant", "content": "x", "status": "incomplete"}]}),
        json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}),
        json!({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": []}]}),
        json!({"input": "x", "chat_template_kwargs": {"chat_template": "x"}}),
    ] {
        assert!(unsupported(ChatApi::Responses, body.clone()), "{body}");
    }
}

#[test]
fn work_and_space_are_bounded() {
    let chat = json!({"messages": [{"role": "user", "content": "x".repeat(1_000)}]});
    let body = chat.to_string();
    let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    for endless in [
        nested,
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% set ns = namespace(x='xxxxxxxx') %}{% for n in range(9999) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ range(100000000) | list | length }}",
        "{{ messages | tojson(indent=100000) }}",
        "{{ strftime_now('%255Y' * 1000) }}",
    ] {
        let text = compile(endless).render(ChatApi::Completions, body.as_bytes(), 0, MAX);
        assert!(matches!(text, Err(Unrendered::Template(_))), "{endless}: {:?}", text.map(|text| text.len()));
    }
    let all = compile("{{ messages[0].content }}");
    let all = |body: &str, max: usize| all.render(ChatApi::Completions, body.as_bytes(), 0, max);
    assert_eq!(all(&body, 1_000).map(|text| text.len()), Ok(1_000));
    assert!(matches!(all(&body, 999), Err(Unrendered::Template(_))));
    let deep = format!("{{\"messages\": {}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(matches!(all(&deep, MAX), Err(Unrendered::Body(_))));
}

#[test]
fn a_template_that_cannot_be_used_is_refused() {
    let refused = |template: &str| ChatTemplate::compile(template, "", "").unwrap_err();
    assert_eq!(refused(&"x".repeat(MAX_TEMPLATE_BYTES + 1)), TemplateError::TooLong(MAX_TEMPLATE_BYTES + 1));
    for template in ["{% if", "{{ }}", "{% include 'x' %}{% import 'y' %}", &"{% if 1 %}".repeat(5_000)] {
        assert!(matches!(refused(template), TemplateError::Syntax(_)), "{template}");
    }
}

#[test]
fn texts_are_normalized() {
    assert_eq!(normalized("e\u{301} plain".to_owned()), "\u{e9} plain");
    assert_eq!(normalized("plain".to_owned()), "plain");
}

/// Lists in lists are dropped, printed and compared by recursion.
#[test]
fn nested_lists_do_not_overflow_the_stack() {
    let (open, close) = ("[".repeat(30), "]".repeat(30));
    let rendered = |rounds: u32, last: &str| {
        let nest = |list: &str| format!("{{% set ns.{list} = {open}ns.{list}{close} %}}");
        let template = format!(
            "{{% set ns = namespace(x=[], y=[]) %}}{{% for i in range({rounds}) %}}{}{}{{% endfor %}}{last}",
            nest("x"),
            if last.contains("ns.y") { nest("y") } else { String::new() },
        );
        render(&template, &json!({"messages": [{"role": "user", "content": "a"}]})).is_ok()
    };
    for last in ["", "{{ ns.x }}", "{{ ns.x == ns.y }}", "{{ ns.x | string | length }}"] {
        let mut depths = (1..40).map(|n| n * 250).map(|rounds| rendered(rounds, last));
        assert!(depths.next() == Some(true) && depths.any(|is_rendered| !is_rendered), "{last}");
    }
}
