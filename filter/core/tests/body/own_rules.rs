//! Bodies that servers read and the EPP refuses.

use endpoint_picker::request::body::{Api, Body, BodyError, Options, Parser, Parsers};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

fn own() -> Options<'static> {
    Options { refuses_as_epp: false, ..Options::default() }
}

/// A chat with this content of its only message.
fn chat(content: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#)
}

#[test]
fn a_body_that_a_server_reads_is_refused_as_the_epp_refuses_it_or_has_its_model_and_passes() {
    let chats = [
        chat(r#"[{"image_url": "http://example.com/a.png"}]"#),
        chat(r#"[{"type": "image_url", "image_url": "http://example.com/a.png"}]"#),
        chat(r#"["text"]"#),
        chat("7"),
        r#"{"model":"m","messages":[],"tools":[]}"#.to_owned(),
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":NaN}"#.to_owned(),
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"x":[-Infinity,1e999,"\ud800"]}"#
            .to_owned(),
        r#"{"tools":[{"type":"function","function":{"parameters":{"maximum":Infinity}}}],"model":"m",
            "messages":[{"role":"user","content":"a"}]}"#
            .to_owned(),
        "\u{feff}".to_owned() + &chat(r#""a""#),
    ];
    let completions = [r#""prompt":"""#, r#""prompt":null"#, r#""prompt":[]"#, r#""n":1"#]
        .map(|prompt| format!(r#"{{"model":"m","prompt_embeds":"AA==",{prompt}}}"#));
    let embeddings = [chat(r#""a""#), r#"{"model":"m"}"#.to_owned()];
    let of_chats = chats.into_iter().map(|body| (Api::Chat, body));
    let of_completions = completions.into_iter().map(|body| (Api::Completions, body));
    let of_embeddings = embeddings.into_iter().map(|body| (Api::Embeddings, body));
    for (api, body) in of_chats.chain(of_completions).chain(of_embeddings) {
        assert!(Body::read_bytes(body.as_bytes(), api, &Options::default()).is_err(), "{body}");
        let read = Body::read_bytes(body.as_bytes(), api, &own()).unwrap();
        assert_eq!(read.model.as_deref(), Some("m"), "{body}");
        let span = read.model_span.unwrap();
        assert_eq!(&body[span], "\"m\"", "the model can be replaced: {body}");
    }
}

#[test]
fn short_parts_of_vllm_are_the_image_and_the_text_that_long_ones_are() {
    let items = |content: &str, options: &Options<'_>| {
        let body = chat(content);
        let prompt = Body::read_bytes(body.as_bytes(), Api::Chat, options).unwrap().prompt;
        (prompt.items().to_vec(), prompt.token_count())
    };
    let long = r#"[{"type": "image_url", "image_url": {"url": "http://example.com/a.png"}}]"#;
    let expected = items(long, &Options::default());
    assert_eq!(expected.0.len(), 1);
    for short in [
        r#"[{"image_url": "http://example.com/a.png"}]"#,
        r#"[{"type": "image_url", "image_url": "http://example.com/a.png"}]"#,
        r#"[{"image_url": {"url": "http://example.com/a.png"}}]"#,
    ] {
        assert_eq!(items(short, &own()), expected, "{short}");
    }
    assert_eq!(
        items(r#"["text"]"#, &own()),
        items(r#"[{"type": "text", "text": "text"}]"#, &Options::default())
    );
}

#[test]
fn a_chat_that_is_embedded_has_the_prompt_of_a_chat() {
    let body = chat(r#""some text""#);
    let read = |api| Body::read(&body, api, &own()).unwrap().prompt;
    assert_eq!(read(Api::Embeddings), read(Api::Chat));
}

#[test]
fn only_a_body_that_lacks_its_prompt_is_marked() {
    let lacks = |api, body: &str| Body::read(body, api, &own()).unwrap().lacks_prompt;
    assert!(lacks(Api::Chat, r#"{"model":"m"}"#));
    assert!(lacks(Api::Generate, r#"{"model":"m","token_ids":[]}"#));
    assert!(!lacks(Api::Chat, &chat(r#""a""#)));
}

#[test]
fn a_body_that_no_server_reads_is_refused() {
    for body in ["", "{", "x", "[]", r#"{"model":"m"} x"#, r#"{"model":NaNa}"#, "\u{feff}\u{feff}{}"] {
        let read = Body::read_bytes(body.as_bytes(), Api::Chat, &own());
        assert!(matches!(read, Err(BodyError::NotAnObject { .. })), "{body}: {read:?}");
    }
    let utf16: Vec<u8> = r#"{"model":"m"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe][..], &utf16].concat();
    for body in [&utf16, &marked] {
        for api in [Api::Chat, Api::ModelOnly, Api::ChatBatch] {
            let read = Body::read_bytes(body, api, &own());
            assert!(read.is_err(), "{api:?}: {read:?}");
        }
    }
}

#[test]
fn a_batch_of_chats_has_the_prompts_of_its_chats() {
    let body = r#"{"model":"m","max_tokens":7,"messages":[
        [{"role":"user","content":"the first chat"}], [{"role":"user","content":"another"}]]}"#;
    let read = Body::read(body, Api::ChatBatch, &Options::default()).unwrap();
    assert_eq!((read.model.as_deref(), read.max_output_tokens), (Some("m"), Some(7)));
    let prompts = ["\"the first chat\"", "\"another\""].map(|content| {
        let body = chat(content);
        let prompt = Body::read(&body, Api::Chat, &Options::default()).unwrap().prompt;
        (
            prompt.lists().iter().map(|list| format!("{list:?}")).collect::<Vec<_>>().concat(),
            prompt.token_count(),
        )
    });
    let lists: Vec<_> = read.prompt.lists().iter().map(|list| format!("{list:?}")).collect();
    assert_eq!(lists, prompts.clone().map(|(list, _)| list));
    assert_eq!(read.prompt.token_count(), prompts.iter().map(|(_, tokens)| tokens).sum::<u64>());
    for other in
        [r#"{"model":"m"}"#, r#"{"model":"m","messages":{}}"#, r#"{"model":"m","messages":[1,null,[]]}"#]
    {
        let read = Body::read(other, Api::ChatBatch, &Options::default()).unwrap();
        assert_eq!((read.model.as_deref(), read.prompt.token_count()), (Some("m"), 0), "{other}");
    }
}

#[test]
fn paths_are_compared_by_whole_segments() {
    let parsers = Parsers::default().by_segments(true);
    for (path, api, as_epp) in [
        ("/v1/messages", Api::Messages, Api::Messages),
        ("/messages", Api::Messages, Api::Messages),
        ("/team/v1/messages", Api::Messages, Api::Messages),
        ("/v1/threads/abc/messages", Api::ModelOnly, Api::Messages),
        ("/openai/threads/abc/messages", Api::ModelOnly, Api::Messages),
        ("/v1/mycompletions", Api::ModelOnly, Api::Completions),
        ("/v1/chat/completions", Api::Chat, Api::Chat),
        ("/chat/completions", Api::Chat, Api::Chat),
        ("/openai/deployments/a/chat/completions", Api::Chat, Api::Chat),
        ("/v1/chat/completions/batch", Api::ChatBatch, Api::ChatBatch),
        ("/v1/responses", Api::Responses, Api::Responses),
        ("/v1/responses/compact", Api::ModelOnly, Api::ModelOnly),
    ] {
        assert_eq!(parsers.api(path), Ok(api), "{path}");
        assert_eq!(Parsers::default().api(path), Ok(as_epp), "{path}");
    }
    let vertex = "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions";
    assert_eq!(Parsers::new(&[Parser::VertexAi]).by_segments(true).api(vertex), Ok(Api::VertexChat));
}
