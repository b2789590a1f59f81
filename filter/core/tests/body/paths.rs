//! From path to API.

use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker::request::body::{Api, Parser, Parsers, opens_tunnel, request_path};

use crate::APIS;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

#[test]
fn the_page_of_parsers_has_the_path_of_each_api() {
    let page = include_str!("../../../../docs/reference/rules/parsers.md");
    for (api, path, _) in APIS {
        let end = path.trim_start_matches('/').trim_start_matches("v1/");
        assert!(page.contains(&format!("`{end}`")), "parsers.md lacks {end:?} of {api:?}");
    }
}

#[test]
fn each_claimed_path_has_its_api() {
    let parsers = Parsers::new(&[Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::SglangHttp]);
    let others = [
        ("/v1/chat/completions/render", Api::Chat),
        ("/v1/completions/render", Api::Completions),
        ("/v1/messages/count_tokens", Api::CountTokens),
        ("/projects/p/endpoints/e/chat/completions", Api::Chat),
    ];
    for (path, api) in APIS.iter().map(|&(api, path, _)| (path, api)).chain(others) {
        assert_eq!(parsers.api(path), Ok(api), "{path}");
    }
}

#[test]
fn the_query_and_one_slash_at_the_end_do_not_matter() {
    let parsers = Parsers::default();
    assert_eq!(parsers.api("/v1/completions?api-version=2/messages"), Ok(Api::Completions));
    assert_eq!(parsers.api("/v1/completions/"), Ok(Api::Completions));
    assert_eq!(parsers.api("/v1/completions/#x"), Ok(Api::Completions));
}

#[test]
fn a_path_is_matched_as_servers_read_it() {
    let parsers = Parsers::new(&[Parser::OpenAi, Parser::Anthropic, Parser::SglangHttp, Parser::Passthrough]);
    for (path, api) in [
        ("/v1/chat/completion%73", Api::Chat),
        ("/v1/%63hat/%63ompletions?x=%3F", Api::Chat),
        ("/v1%2Fchat%2fcompletions", Api::Chat),
        ("/v1/chat/completions%2F", Api::Chat),
        ("//v1///chat//completions//", Api::Chat),
        ("/v1/chat/./completions/.", Api::Chat),
        ("/v1/chat/x/%2e%2E/completions", Api::Chat),
        ("/v1/chat/completions/x/..", Api::Chat),
        ("/../../v1/embeddings", Api::Embeddings),
        ("/v1/message%73", Api::Messages),
        ("/v1/messages/x/../count_tokens", Api::CountTokens),
        ("//generate", Api::SglangGenerate),
        // Decoded once: no server has a route for these.
        ("/v1/chat/completion%2573", Api::ModelOnly),
        ("/v1/chat/completions%3Fx", Api::ModelOnly),
        ("/v1/chat/completions/..", Api::ModelOnly),
        // Not percent-encoded, or not in UTF-8.
        ("/v1/chat/completion%7", Api::ModelOnly),
        ("/v1/chat/completion%ff", Api::ModelOnly),
        ("/v1/chat%ff/completions", Api::Completions),
    ] {
        assert_eq!(parsers.api(path), Ok(api), "{path}");
    }
}

#[test]
fn a_refusal_shows_the_path_as_the_client_wrote_it() {
    let error = Parsers::new(&[Parser::OpenAi]).api("/v1//message%73?x=1").unwrap_err();
    assert_eq!(error.to_string(), "no parser registered matching path suffix for: /v1//message%73");
}

#[test]
fn a_claim_need_not_begin_at_a_slash() {
    assert_eq!(Parsers::default().api("/v1/mycompletions"), Ok(Api::Completions));
}

#[test]
fn the_longest_claim_wins_whatever_the_order() {
    for order in [[Parser::SglangHttp, Parser::VllmHttp], [Parser::VllmHttp, Parser::SglangHttp]] {
        assert_eq!(Parsers::new(&order).api("/inference/v1/generate"), Ok(Api::Generate));
    }
}

#[test]
fn methods_of_grpc_are_read_if_their_parser_is_configured() {
    let parsers = Parsers::new(&[Parser::VllmGrpc, Parser::VertexAi]);
    for (path, api) in [
        ("/vllm.grpc.engine.VllmEngine/Generate", Api::GrpcGenerate),
        ("/vllm.grpc.engine.VllmEngine/Embed", Api::GrpcEmbed),
        ("/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions", Api::VertexChat),
        ("/google.cloud.aiplatform.v1beta1.PredictionService/RawPredict", Api::VertexRawPredict),
        ("/google.cloud.aiplatform.v1beta1.PredictionService/StreamRawPredict", Api::VertexStreamRawPredict),
    ] {
        assert_eq!(parsers.api(path), Ok(api), "{path}");
        assert_eq!(Parsers::default().api(path), Ok(Api::ModelOnly), "{path}");
    }
    let error = parsers.api("/vllm.grpc.engine.VllmEngine/Abort").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no parser registered matching path suffix for: /vllm.grpc.engine.VllmEngine/Abort"
    );
}

#[test]
fn an_unclaimed_path_goes_through_unread_by_default() {
    assert_eq!(Parsers::default().api("/v1/models/load"), Ok(Api::ModelOnly));
    assert_eq!(Parsers::new(&[]), Parsers::default());
}

#[test]
fn an_unclaimed_path_is_refused_when_no_parser_takes_everything() {
    let error = Parsers::new(&[Parser::OpenAi]).api("/v1/messages?x=1").unwrap_err();
    assert_eq!(error.to_string(), "no parser registered matching path suffix for: /v1/messages");
}

#[test]
fn parsers_after_one_that_takes_everything_have_no_effect() {
    let parsers = Parsers::new(&[Parser::Anthropic, Parser::Passthrough, Parser::OpenAi]);
    assert_eq!(parsers.api("/v1/completions"), Ok(Api::ModelOnly));
    assert_eq!(parsers.api("/v1/messages"), Ok(Api::Messages));
}

#[test]
fn a_parser_named_twice_counts_once() {
    let twice = [Parser::OpenAi, Parser::Anthropic, Parser::OpenAi];
    assert_eq!(Parsers::new(&twice), Parsers::new(&twice[..2]));
}

#[test]
fn three_parsers_are_stricter_than_their_claims() {
    let parsers = Parsers::new(&[Parser::Anthropic, Parser::VllmHttp, Parser::SglangHttp]);
    for (path, message) in [
        ("/v1/messages/?x", "unsupported API endpoint: /v1/messages/"),
        ("/v1/mymessages", "unsupported API endpoint: /v1/mymessages"),
        ("/inference/v1/generate/", "unsupported path: /inference/v1/generate/"),
        ("/v1/generate", "unsupported path: /v1/generate"),
    ] {
        assert_eq!(parsers.api(path).unwrap_err().to_string(), message);
    }
    assert_eq!(parsers.api("/generate/"), Ok(Api::SglangGenerate));
}

#[test]
fn the_path_is_the_first_header_that_has_one() {
    let path = |headers: &[(&str, &str)]| {
        let list: HeaderList = headers.iter().copied().collect();
        request_path(Headers(&list).get(":path"), Headers(&list)).to_owned()
    };
    assert_eq!(path(&[("x-original-path", "/b"), (":path", "/a?q")]), "/a");
    assert_eq!(path(&[("x-forwarded-path", "/c"), (":path", ""), ("x-original-path", "/b?q")]), "/b");
    assert_eq!(path(&[("x-forwarded-path", "/c")]), "/c");
    assert_eq!(path(&[]), "/v1/completions");
}

#[test]
fn paths_with_a_model_are_recognized_when_every_path_is_accepted() {
    for (path, api) in [
        ("/tokenize", Api::ModelOnly),
        ("/detokenize/", Api::ModelOnly),
        ("/v1/tokenize?x", Api::ModelOnly),
        ("/detokenize_info", Api::ModelOnly),
        ("/retokenize", Api::ModelOnly),
        ("/rerank", Api::ModelOnly),
        ("/v1/rerank", Api::ModelOnly),
        ("/v2/rerank/", Api::ModelOnly),
        ("/v2/%72erank", Api::ModelOnly),
        ("/score", Api::ModelOnly),
        ("/v1/score", Api::ModelOnly),
        ("/classify", Api::ModelOnly),
        ("/pooling", Api::ModelOnly),
        ("/v2/embed", Api::ModelOnly),
        ("/invocations", Api::Invocations),
        ("/v1/audio/transcriptions", Api::ModelOnly),
        ("/v1/audio/translations", Api::ModelOnly),
        ("/v1/audio/speech", Api::ModelOnly),
        ("/v1/images/edits", Api::ModelOnly),
        ("/v1/images/variations", Api::ModelOnly),
        ("/v1/audio", Api::ModelOnly),
        ("/v1/edits", Api::ModelOnly),
        ("/reinvocations", Api::ModelOnly),
    ] {
        assert_eq!(Parsers::default().api(path), Ok(api), "{path}");
        assert!(Parsers::new(&[Parser::OpenAi]).api(path).is_err(), "{path}");
    }
}

#[test]
fn connect_and_upgrades_open_tunnels() {
    let opens = |headers: &[(&str, &str)]| opens_tunnel(Headers(&headers.iter().copied().collect()));
    assert!(opens(&[(":method", "CONNECT")]));
    assert!(opens(&[(":method", "GET"), ("upgrade", "websocket")]));
    assert!(!opens(&[(":method", "GET")]));
    assert!(
        !opens(&[(":method", "POST"), ("upgrade", "websocket")]),
        "its body would reach the server unread"
    );
}

#[test]
fn parsers_are_found_by_their_plugin_types() {
    for parser in Parser::ALL {
        assert_eq!(Parser::from_type_name(parser.type_name()), Some(parser));
    }
    assert_eq!(Parser::from_type_name("max-score-picker"), None);
}
