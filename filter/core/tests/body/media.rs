//! Tokens of images, videos and audio.

use endpoint_picker::request::body::{Api, Body, Options};
use endpoint_picker::request::prompt::{
    Frames, MAX_IMAGE_TOKENS, MAX_VIDEO_TOKENS, Media, Piece, Resolution, TokensPerImage, VideoEstimate,
    VideoHints,
};
use xxhash_rust::xxh64::xxh64;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{bytes, read_limited};

/// The token and count of the only block of a chat, which follows a role of one letter.
fn block(block: &str, options: &Options) -> (u32, u64) {
    let json = format!(r#"{{"messages":[{{"role":"r","content":[{block}]}}]}}"#);
    let body = Body::read(&json, Api::Chat, options).unwrap();
    let list = &body.prompt.lists()[0].pieces;
    let [Piece::Text(_), Piece::Media { token, count }] = list[..] else { panic!("{list:?}") };
    assert_eq!(body.prompt.token_count(), 1 + count, "the role is padded to one token");
    (token, count)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn token(text: &str) -> u32 {
    xxh64(text.as_bytes(), 0) as u32
}

fn image(url: &str) -> u64 {
    let json = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
    let (found, count) = block(&json, &Options::default());
    assert_eq!(found, token(url));
    count
}

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMACAIAAAAAAAAA";
const GIF: &str = "R0lGODlhQABAAAAA";
/// A JFIF segment, then a frame header of 480 × 640.
const JPEG: &str = "/9j/4AAQSkZJRgABAQAAAQABAAD/wAARCAHgAoADASIAAhEBAxEB";

#[test]
fn an_image_counts_by_its_area() {
    assert_eq!(image(&format!("data:image/png;base64,{PNG}")), 1024 * 768 / 1024);
    assert_eq!(image(&format!("data:image/gif;base64,{GIF}")), 4);
    assert_eq!(image(&format!("data:image/jpeg;base64,{JPEG}")), 640 * 480 / 1024);
    assert_eq!(image(&format!("data:image/webp;base64,{GIF}")), 4, "the bytes decide, not the name");
}

#[test]
fn an_image_that_cannot_be_measured_counts_as_360p() {
    for url in [
        "https://example.com/cat.png".to_owned(),
        String::new(),
        format!("data:text/plain;base64,{PNG}"),
        format!("data:image/png,{PNG}"),
        "data:image/png;base64,".to_owned(),
        "data:image/png;base64,AAAA".to_owned(),
        format!("data:image/png;base64,{}", &PNG[..20]),
        format!("data:image/png;base64,!{PNG}"),
        format!("data:image/jpeg;base64,{}", &JPEG[..24]),
        "data:image/gif;base64,R0lGODlhAAAAAAAA".to_owned(),
        "data:image/jpeg;base64,/9j/////".to_owned(),
        "data:image/jpeg;base64,/9j/4AAB".to_owned(),
        "data:image/webp;base64,UklGRhIAAABXRUJQVlA4TAYAAAAvAAAAAAfQ".to_owned(),
    ] {
        assert_eq!(image(&url), 225, "{url}");
    }
}

#[test]
fn the_static_mode_counts_every_image_the_same() {
    let json = format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PNG}"}}}}"#);
    for (fixed, expected) in [(300, 300), (0, 1)] {
        let media = Media { image: TokensPerImage::Fixed(fixed), ..Media::default() };
        assert_eq!(block(&json, &Options { media, ..Options::default() }).1, expected);
    }
}

#[test]
fn audio_counts_by_the_length_of_data_and_format() {
    for (fields, id, count) in [
        (r#""type":"input_audio","input_audio":{"data":"AAAAAA","format":"wav"}"#, "AAAAAAwav", 3),
        (r#""type":"input_audio","input_audio":{"format":"wav","data":"AAAAA"}"#, "AAAAAwav", 2),
        (r#""type":"input_audio""#, "", 1),
        (r#""type":"audio_url","audio_url":{"url":"http://x"}"#, "", 1),
    ] {
        assert_eq!(block(&format!("{{{fields}}}"), &Options::default()), (token(id), count), "{fields}");
    }
}

#[test]
fn a_video_counts_by_the_hints_of_the_request() {
    let json = r#"{"type":"video_url","video_url":{"url":"http://x/y.mp4"}}"#;
    for (fps, duration, resolution, expected) in [
        (None, None, None, 4500),
        (None, Some("2.5"), None, 5 * 225),
        (None, Some("0.4"), None, 1),
        (None, None, Some("1024x1024"), 20 * 1024),
        (None, None, Some(" 1024 X 1024 "), 20 * 1024),
        (Some("60"), None, None, 4500),
        (None, Some("-1"), Some("0x5"), 4500),
        (None, Some("NaN"), Some("axb"), 4500),
        (None, Some("inf"), Some("7"), 4500),
    ] {
        let video = VideoHints::from_headers(fps, duration, resolution);
        let (found, count) = block(json, &Options { video, ..Options::default() });
        assert_eq!((found, count), (token("http://x/y.mp4"), expected), "{duration:?} {resolution:?}");
    }
}

#[test]
fn frames_are_sampled_or_strided_within_their_bounds() {
    let base = VideoEstimate { per_frame: TokensPerImage::Fixed(1), ..VideoEstimate::default() };
    let strided = |stride| Frames::Strided { source_per_second: 24.0, stride };
    let fps = VideoHints { frames_per_second: Some(30.0), ..VideoHints::default() };
    let none = VideoHints::default();
    for (estimate, hints, expected) in [
        (VideoEstimate { frames: strided(1), ..base }, none, 240),
        (VideoEstimate { frames: strided(7), ..base }, none, 34),
        (VideoEstimate { frames: strided(0), ..base }, fps, 300),
        (VideoEstimate { frames: strided(10), min_frames: Some(50), ..base }, none, 50),
        (VideoEstimate { max_frames: Some(8), ..base }, none, 8),
        (VideoEstimate { frames: Frames::Sampled { per_second: 2.0, merged: 2 }, ..base }, none, 10),
        (
            VideoEstimate {
                frames: Frames::Sampled { per_second: 2.0, merged: 2 },
                max_frames: Some(9),
                ..base
            },
            none,
            4,
        ),
        (VideoEstimate { max_tokens: Some(5), ..base }, none, 5),
        (VideoEstimate { default_duration: 1e300, ..base }, none, u64::MAX),
        (
            VideoEstimate {
                per_frame: TokensPerImage::ByArea {
                    pixels_per_token: 0,
                    default: Resolution { width: 2048, height: 1 },
                },
                default_duration: 1.0,
                ..base
            },
            none,
            4,
        ),
    ] {
        assert_eq!(estimate.of_video(&hints).count, expected, "{estimate:?}");
    }
}

#[test]
fn an_asset_starts_at_a_token_boundary() {
    let json =
        r#"{"messages":[{"role":"abcde","content":[{"type":"input_audio"},{"type":"text","text":"f"}]}]}"#;
    let body = read_limited(Api::Chat, json, 100);
    let empty = token("").to_le_bytes();
    assert_eq!(bytes(&body.prompt).concat(), [&b"abcde\0\0\0"[..], &empty, b"f"].concat());
    assert_eq!(body.prompt.token_count(), 4);
}

#[test]
fn an_endless_video_is_counted_but_kept_only_to_the_limit() {
    let video = VideoHints { duration: Some(f64::MAX), ..VideoHints::default() };
    let options = Options { keep_bytes: 12, video, ..Options::default() };
    let json = r#"{"messages":[{"content":[{"type":"video_url"},{"type":"video_url"}]}]}"#;
    let body = Body::read(json, Api::Chat, &options).unwrap();
    assert_eq!(bytes(&body.prompt).concat().len(), 12);
    assert_eq!(body.prompt.token_count(), 2 * MAX_VIDEO_TOKENS);
}

/// Tokens of a chat with these blocks: all, and those that it carries.
fn tokens(blocks: &str, options: &Options) -> (u64, u64) {
    let json = format!(r#"{{"messages":[{{"content":[{blocks}]}}]}}"#);
    let prompt = Body::read(&json, Api::Chat, options).unwrap().prompt;
    (prompt.token_count(), prompt.carried_tokens())
}

#[test]
fn an_image_carries_no_more_tokens_than_its_bytes_have_as_text() {
    // A PNG's header that claims 2^31 × 2^31 pixels.
    const HUGE: &str = "iVBORw0KGgoAAAANSUhEUoAAAACAAAAACAIAAAA=";
    let block = |url: &str| format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
    let url = |data: &str| format!("data:image/png;base64,{data}");
    let options = Options::default();
    assert_eq!(tokens(&block(&url(HUGE)), &options), (MAX_IMAGE_TOKENS, 16));
    let twenty = vec![block(&url(HUGE)); 20].join(",");
    assert_eq!(tokens(&twenty, &options), (20 * MAX_IMAGE_TOKENS, 20 * 16));
    // A photo has more bytes than pixels in a thousand, so nothing of it is a claim.
    let photo = format!("{PNG}{}", "A".repeat(100_000));
    assert_eq!(tokens(&block(&url(&photo)), &options), (768, 768));
    assert_eq!(tokens(&block("https://example.com/cat.png"), &options), (225, 225));
    let media = Media { image: TokensPerImage::Fixed(99), ..Media::default() };
    assert_eq!(tokens(&block(&url(HUGE)), &Options { media, ..options }), (99, 99), "the operator's number");
    let data = format!(
        r#"{{"messages":[{{"content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{HUGE}"}}}}]}}]}}"#
    );
    let prompt = Body::read(&data, Api::Messages, &options).unwrap().prompt;
    assert_eq!((prompt.token_count(), prompt.carried_tokens()), (MAX_IMAGE_TOKENS, 10));
}

#[test]
fn the_hints_of_a_video_carry_no_tokens_unless_the_configuration_bounds_them() {
    let block = r#"{"type":"video_url","video_url":{"url":"http://x/y.mp4"}}"#;
    let tokens_of = |fps, duration, resolution, max_tokens| {
        let video = VideoHints::from_headers(fps, duration, resolution);
        let estimate = VideoEstimate { max_tokens, ..VideoEstimate::default() };
        let media = Media { video: estimate, ..Media::default() };
        tokens(block, &Options { video, media, ..Options::default() })
    };
    assert_eq!(tokens_of(None, None, None, None), (4_500, 4_500));
    assert_eq!(tokens_of(None, Some("60"), None, None), (27_000, 4_500));
    assert_eq!(tokens_of(None, Some("1"), None, None), (450, 450), "a short one has less to do");
    for (fps, duration, resolution) in [
        (None, Some("1e300"), None),
        (None, None, Some("4294967295x4294967295")),
        (Some("1e300"), Some("1e300"), Some("4294967295x4294967295")),
    ] {
        assert_eq!(tokens_of(fps, duration, resolution, None), (MAX_VIDEO_TOKENS, 4_500));
        assert_eq!(tokens_of(fps, duration, resolution, Some(50_000)), (50_000, 50_000));
    }
}

#[test]
fn words_and_audio_are_carried_whole() {
    let audio = format!(r#"{{"type":"input_audio","input_audio":{{"data":"{}"}}}}"#, "A".repeat(4_000));
    assert_eq!(tokens(&audio, &Options::default()), (1_000, 1_000));
    let text = format!(r#"{{"type":"text","text":"{}"}}"#, "word".repeat(1_000));
    assert_eq!(tokens(&text, &Options::default()), (1_000, 1_000));
}
