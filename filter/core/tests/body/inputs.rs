//! Completions and embeddings: one string, several, or token ids.

use endpoint_picker::body::Api;
use endpoint_picker::prompt::Piece;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{bytes, read, read_limited, text};

#[test]
fn a_string_is_the_prompt_and_so_is_a_single_string_in_an_array() {
    assert_eq!(text(Api::Completions, r#"{"prompt":"hello"}"#), "hello");
    assert_eq!(text(Api::Completions, r#"{"prompt":["hello"]}"#), "hello");
}

#[test]
fn several_strings_are_independent_prompts() {
    let body = read(Api::Completions, r#"{"prompt":["hello","","wor\u006cd"]}"#).unwrap();
    assert_eq!(bytes(&body.prompt), [b"hello", b"world"]);
    assert_eq!(body.prompt.token_count(), 4, "each list is padded for itself");
}

#[test]
fn token_ids_are_taken_as_they_are() {
    for api in [Api::Completions, Api::Embeddings] {
        let field = if api == Api::Completions { "prompt" } else { "input" };
        let json = format!(r#"{{"{field}":[0, 1.0, 3e2, 4294967295]}}"#);
        let body = read(api, &json).unwrap();
        let list = body.prompt.lists().next().unwrap();
        assert_eq!(list, [Piece::Ids(vec![0, 1, 300, u32::MAX])]);
        assert_eq!(body.prompt.token_count(), 4);
    }
}

#[test]
fn other_embeddings_are_the_json_of_the_references_structure() {
    for (input, expected) in [
        (r#""a<b""#, r#"{"Raw":"a\u003cb","Strings":null,"TokenIDs":null}"#),
        (r#"["a","b"]"#, r#"{"Raw":"","Strings":["a","b"],"TokenIDs":null}"#),
        (r#"[""]"#, r#"{"Raw":"","Strings":[""],"TokenIDs":null}"#),
    ] {
        assert_eq!(text(Api::Embeddings, &format!(r#"{{"input":{input}}}"#)), expected);
    }
}

#[test]
fn beyond_the_limit_strings_and_ids_are_only_counted() {
    let body = read_limited(Api::Completions, r#"{"prompt":["abcdef","ghijkl","mnopqr"]}"#, 8);
    assert_eq!(bytes(&body.prompt), [&b"abcdef"[..], b"gh"]);
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (6, true));

    let body = read_limited(Api::Completions, r#"{"prompt":["abcd","efgh","ijkl"]}"#, 8);
    assert_eq!(bytes(&body.prompt), [b"abcd", b"efgh"]);
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (3, false), "what is kept is whole");

    let body = read_limited(Api::Completions, r#"{"prompt":[1,2,3,4,5]}"#, 11);
    assert_eq!(body.prompt.lists().next().unwrap(), [Piece::Ids(vec![1, 2])]);
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (5, true));

    for (json, tokens) in [
        (
            r#"{"input":"abcdefghijkl"}"#,
            br#"{"Raw":"abcdefghijkl","Strings":null,"TokenIDs":null}"#.len().div_ceil(4),
        ),
        (
            r#"{"input":["ab","cd","ef","gh"]}"#,
            br#"{"Raw":"","Strings":["ab","cd","ef","gh"],"TokenIDs":null}"#.len().div_ceil(4),
        ),
    ] {
        let body = read_limited(Api::Embeddings, json, 6);
        assert_eq!(bytes(&body.prompt), [br#"{"Raw""#]);
        assert_eq!(body.prompt.token_count(), tokens as u64);
    }
}
