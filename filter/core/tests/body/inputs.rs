//! Completions and embeddings: one string, several, or token ids.

use endpoint_picker::request::body::Api;
use endpoint_picker::request::prompt::Piece;

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
fn other_embeddings_are_the_json_of_the_epps_structure() {
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

#[test]
fn strings_that_are_not_kept_count_as_the_json_that_the_epp_makes_of_them() {
    let tabs = r"\t".repeat(40);
    for (api, json, tokens) in [
        // {"Raw":"…","Strings":null,"TokenIDs":null} has 41 bytes around the 80 of the tabs.
        (Api::Embeddings, format!(r#"{{"input":"{tabs}"}}"#), 31),
        (Api::Embeddings, format!(r#"{{"input":["{tabs}","<"]}}"#), (39 + 2 + 80 + 1 + 8_usize).div_ceil(4)),
        (Api::Conversations, format!(r#"{{"items":[{{"type":"{tabs}","role":"\n"}}]}}"#), 27),
        (Api::Responses, format!(r#"{{"input":"{tabs}"}}"#), 24),
        (Api::Messages, format!(r#"{{"messages":[{{}}],"tools":[{{"name":"{tabs}"}}]}}"#), 24),
    ] {
        let counts = [0, 3, 50, usize::MAX].map(|keep| read_limited(api, &json, keep).prompt.token_count());
        assert_eq!(counts, [tokens as u64; 4], "{json}");
    }
}

#[test]
fn arrays_of_token_ids_are_independent_prompts() {
    for (api, field) in [(Api::Completions, "prompt"), (Api::Embeddings, "input")] {
        for (value, lists, tokens) in [
            ("[[5,6],[],[9]]", &[&[5, 0, 0, 0, 6, 0, 0, 0][..], &[9, 0, 0, 0]][..], 3),
            ("[[1]]", &[&[1, 0, 0, 0]], 1),
            ("[[]]", &[], 0),
        ] {
            let json = format!(r#"{{"{field}":{value}}}"#);
            let body = read(api, &json).unwrap();
            assert_eq!((bytes(&body.prompt), body.prompt.token_count()), (lists_of(lists), tokens), "{json}");
        }
        let mixed = ["[[1],2]", "[1,[2]]", r#"[[1],"a"]"#, r#"["a",[1]]"#];
        for value in mixed.into_iter().chain([r#"[["a"]]"#, "[[[1]]]", "[[1.5]]", "[[1],[-1]]", "[{}]"]) {
            let json = format!(r#"{{"{field}":{value}}}"#);
            assert!(read(api, &json).is_err(), "{json}");
        }
    }
}

fn lists_of(lists: &[&[u8]]) -> Vec<Vec<u8>> {
    lists.iter().map(|list| list.to_vec()).collect()
}

#[test]
fn many_arrays_of_token_ids_stay_within_the_limit() {
    let json = format!(r#"{{"prompt":[{}[7,8]]}}"#, "[1],".repeat(100_000));
    let body = read_limited(Api::Completions, &json, 1_000);
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (100_002, true));
    assert!(body.prompt.lists().len() <= 16, "each costs a block's 256 bytes");
}
