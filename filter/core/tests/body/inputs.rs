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
        let list = &body.prompt.lists()[0];
        assert_eq!(list.pieces, [Piece::Ids(vec![0, 1, 300, u32::MAX])]);
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
    let texts = ["a", "b", "c", "d", "e"].map(|letter| letter.repeat(300));
    let json = serde_json::json!({"prompt": texts}).to_string();
    let body = read_limited(Api::Completions, &json, 280);
    let lengths: Vec<usize> = bytes(&body.prompt).iter().map(Vec::len).collect();
    assert_eq!(lengths, [280; 4], "each up to the limit, all up to four times that");
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (5 * 75, true));

    let body = read_limited(Api::Completions, r#"{"prompt":["a","b","c","d","e"]}"#, 256);
    assert_eq!(bytes(&body.prompt).concat(), b"abcd", "each costs a block's 256 bytes");
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (5, true));

    let body = read_limited(Api::Completions, r#"{"prompt":[1,2,3,4,5]}"#, 11);
    assert_eq!(body.prompt.lists()[0].pieces, [Piece::Ids(vec![1, 2])]);
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
