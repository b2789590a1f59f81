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

#[test]
fn placeholders_of_features_are_images_with_the_hashes_in_their_places() {
    let items = |features: &str| {
        let json = format!(r#"{{"model":"m","token_ids":[1,2],"features":{features}}}"#);
        let prompt = read(Api::Generate, &json).unwrap().prompt;
        assert_eq!(prompt.token_count(), 2, "{features}");
        (prompt.has_media(), prompt.items().len())
    };
    let placeholder = r#"{"offset":0,"length":1}"#;
    for (hashes, placeholders, expected) in [
        (r#"{"image":["a","b"]}"#, format!(r#"{{"image":[{placeholder},{placeholder}]}}"#), (true, 2)),
        (r#"{"image":["a"],"audio":["c"]}"#, format!(r#"{{"audio":[{placeholder}]}}"#), (true, 1)),
        (r#"{"image":["",1]}"#, format!(r#"{{"image":[{placeholder},{placeholder}]}}"#), (true, 0)),
        ("{}", format!(r#"{{"image":[{placeholder}]}}"#), (true, 0)),
        (r#"{"image":["a"]}"#, "{}".to_owned(), (false, 0)),
        ("7", "[]".to_owned(), (false, 0)),
    ] {
        let features = format!(r#"{{"mm_hashes":{hashes},"mm_placeholders":{placeholders}}}"#);
        assert_eq!(items(&features), expected, "{features}");
    }
    assert_eq!(items("null"), (false, 0));
    assert_eq!(items("5"), (false, 0));
}
