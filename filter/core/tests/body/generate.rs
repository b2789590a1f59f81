//! The engines' own generation from token ids.

use endpoint_picker::request::body::Api;
use endpoint_picker::request::prompt::Piece;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{read, read_limited};

#[test]
fn vllm_token_ids_may_be_written_as_any_whole_numbers() {
    let json = r#"{"model":"m","token_ids":[1,2.0,3e0],"stream":true,"features":{"mm_hashes":{}}}"#;
    let body = read(Api::Generate, json).unwrap();
    assert_eq!(body.prompt.lists()[0].pieces, [Piece::Ids(vec![1, 2, 3])]);
    assert_eq!((body.model.as_deref(), body.stream), (Some("m"), true));
}

#[test]
fn sglang_bodies_name_no_model() {
    let json = r#"{"model":"m","input_ids":[1,2],"stream":true,"extra_key":null}"#;
    let body = read(Api::SglangGenerate, json).unwrap();
    assert_eq!(body.prompt.lists()[0].pieces, [Piece::Ids(vec![1, 2])]);
    assert_eq!((body.model, body.model_span, body.stream, body.cache_salt), (None, None, true, None));
}

#[test]
fn token_ids_beyond_the_limit_are_only_counted() {
    let body = read_limited(Api::Generate, r#"{"token_ids":[1,2,3]}"#, 8);
    assert_eq!(body.prompt.lists()[0].pieces, [Piece::Ids(vec![1, 2])]);
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (3, true));
}

#[test]
fn a_bad_token_id_beyond_the_limit_is_found_all_the_same() {
    let json = format!(r#"{{"token_ids":[{}0.5]}}"#, "7,".repeat(300_000));
    assert_eq!(
        read(Api::Generate, &json).unwrap_err().to_string(),
        "invalid generate request: token_ids[300000]: invalid value 0.5"
    );
}
