//! The model in forms: uploads of audio and images.

use std::borrow::Cow;

use endpoint_picker::policy::name_model_in_form;
use endpoint_picker::request::body::{Api, Body, BodyError, Options, complete};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const TYPE: &str = "multipart/form-data; boundary=b0";

fn options(content_type: &str) -> Options<'_> {
    Options { content_type: Some(content_type), ..Options::default() }
}

fn read_as<'a>(body: &'a [u8], content_type: &str) -> Result<Body<'a>, BodyError> {
    Body::read_bytes(body, Api::ModelOnly, &options(content_type))
}

/// A part with this head.
fn part(head: &str, value: &str) -> String {
    format!("--b0\r\n{head}\r\n\r\n{value}\r\n")
}

fn field(name: &str, value: &str) -> String {
    part(&format!("Content-Disposition: form-data; name=\"{name}\""), value)
}

const FILE_HEAD: &str =
    "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav";

fn form(parts: &[String]) -> String {
    parts.concat() + "--b0--\r\n"
}

fn refusal(body: &str, content_type: &str) -> String {
    match read_as(body.as_bytes(), content_type) {
        Err(error) => error.to_string(),
        Ok(read) => panic!("{content_type}: {body} was not refused: {read:?}"),
    }
}

#[test]
fn the_model_is_that_of_its_field_wherever_it_stands() {
    let file = part(FILE_HEAD, "RIFF\r\n--b\r\n\0--b0");
    for parts in [
        vec![field("model", "whisper-1"), file.clone()],
        vec![file.clone(), field("model", "whisper-1")],
        vec![field("language", "model"), file.clone(), field("model", "whisper-1"), field("prompt", "")],
    ] {
        let body = form(&parts);
        let read = read_as(body.as_bytes(), TYPE).unwrap();
        assert_eq!(read.model.as_deref(), Some("whisper-1"), "{body}");
        assert_eq!(&body[read.model_span.unwrap()], "whisper-1");
        assert!(read.is_form);
    }
}

#[test]
fn a_form_is_read_in_every_spelling_that_servers_read_alike() {
    let model = |head: &str| form(&[part(head, "m")]);
    for head in [
        "Content-Disposition: form-data; name=model",
        "CONTENT-DISPOSITION:form-data;name=\"model\"",
        "content-disposition: Form-Data ; Name=\"model\" ;",
        "Content-Type: text/plain; charset=UTF-8\r\nContent-Disposition: form-data; name=\"model\"",
        "Content-Disposition: form-data; name=\"model\"\r\nContent-Length: 1\r\nContent-Transfer-Encoding: 8bit",
    ] {
        assert_eq!(read_as(model(head).as_bytes(), TYPE).unwrap().model.as_deref(), Some("m"), "{head}");
    }
    for content_type in [
        "multipart/form-data; boundary=\"b0\"",
        "Multipart/Form-Data;BOUNDARY=b0",
        "multipart/form-data; charset=UTF-8; boundary=b0; x=\"y;z\"",
    ] {
        let body = form(&[field("model", "m")]);
        assert_eq!(
            read_as(body.as_bytes(), content_type).unwrap().model.as_deref(),
            Some("m"),
            "{content_type}"
        );
    }
    let escaped = part("Content-Disposition: form-data; name=\"file\"; filename=\"a\\\"b\\\\c;d.wav\"", "x");
    let body = form(&[escaped, field("model", "m")]) + "an epilogue";
    assert_eq!(read_as(body.as_bytes(), TYPE).unwrap().model.as_deref(), Some("m"));
}

#[test]
fn a_form_without_a_model_names_none() {
    for body in ["--b0--".to_owned(), form(&[field("file", "x")]), form(&[field("model", "")])] {
        assert_eq!(read_as(body.as_bytes(), TYPE).unwrap().model, None, "{body}");
    }
}

#[test]
fn what_servers_may_read_in_several_ways_is_refused() {
    let good = field("model", "m");
    for (body, cause) in [
        (String::new(), "does not begin with the boundary"),
        (format!("preamble\r\n{}", form(std::slice::from_ref(&good))), "does not begin with the boundary"),
        ("--b0".to_owned(), "followed by something else"),
        (form(std::slice::from_ref(&good)).replace("--b0\r\n", "--b0 \r\n"), "followed by something else"),
        ("--b0\r\n".to_owned(), "a part has no end"),
        (good.clone(), "a part has no end"),
        (good.clone() + "--b0", "followed by something else"),
        (good.clone() + "--b0-", "followed by something else"),
        (good.replace("\r\n", "\n"), "followed by something else"),
        (form(&[good.clone(), field("model", "other")]), "several fields called model"),
        (form(&["--b0\r\n".to_owned(), good.clone()]), "a part begins with the boundary"),
        (form(&[good.clone(), "--b0\r\n".to_owned()]), "a part begins with the boundary"),
        (form(&[part("X: y", "m")]), "a part has no name"),
        (form(&[part("Content-Disposition: form-data", "m")]), "a part has no name"),
        (form(&["--b0\r\n\r\nm\r\n".to_owned()]), "a part has no name"),
        (form(&["--b0\r\nContent-Disposition: form-data; name=model\r\n".to_owned()]), "has no end"),
        (form(&[part("Content-Disposition: attachment; name=\"model\"", "m")]), "not form-data"),
        (form(&[part("Content-Disposition: form-data; name*=utf-8''model", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name*0=mo; name*1=del", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name=\"a\"; name=\"model\"", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name=\"mo\\del\"", "m")]), "ambiguous"),
        (
            form(&[part("Content-Disposition: form-data; filename=\"a\\\\\"; name=\"model\"", "m")]),
            "ambiguous",
        ),
        (form(&[part("Content-Disposition: form-data; name=\"model", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name=\"model\" x", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name=mo del", "m")]), "ambiguous"),
        (form(&[part("Content-Disposition: form-data; name = model", "m")]), "ambiguous"),
        (
            form(&[part(
                "Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=model",
                "m",
            )]),
            "several names",
        ),
        (form(&[part("Content-Disposition: form-data;\r\n name=model", "m")]), "a part has no name"),
        (form(&[part("Content-Disposition: form-data; name=a;\r\n name=model", "m")]), "malformed"),
        (form(&[part("Content-Disposition : form-data; name=model", "m")]), "malformed"),
        (form(&[part("Content-Disposition: form-data; name=mo\rdel", "m")]), "malformed"),
        (form(&[part("Content-Disposition: form-data; name=\"mo\0del\"", "m")]), "malformed"),
        (form(&[part("Content-Disposition: form-data; name=model; filename=\"\"", "m")]), "is a file"),
        (
            form(&[part(
                "Content-Disposition: form-data; name=model\r\nContent-Transfer-Encoding: base64",
                "bQ==",
            )]),
            "transfer encoding",
        ),
        (
            form(&[part(
                "Content-Type: text/plain; charset=utf-16\r\nContent-Disposition: form-data; name=model",
                "m",
            )]),
            "charset",
        ),
    ] {
        let message = refusal(&body, TYPE);
        assert!(message.starts_with("the form cannot be read: "), "{message}");
        assert!(message.contains(cause), "{body:?}: {message} and not {cause}");
    }
    let mut body = form(&[field("model", "m?")]).into_bytes();
    let at = body.iter().position(|&byte| byte == b'?').unwrap();
    body[at] = 0xff;
    assert!(read_as(&body, TYPE).unwrap_err().to_string().contains("not UTF-8"));
}

#[test]
fn an_ambiguous_content_type_is_refused() {
    let body = form(&[field("model", "m")]);
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    for (content_type, cause) in [
        ("multipart/form-data", "has no boundary"),
        ("multipart/form-data; boundary=", "ambiguous"),
        ("multipart/form-data; boundary=\"\"", "70 or invalid characters"),
        ("multipart/form-data; boundary=\"b0 \"", "70 or invalid characters"),
        ("multipart/form-data; boundary=\"b\\\"0\"", "70 or invalid characters"),
        (&*long, "70 or invalid characters"),
        ("multipart/form-data; boundary=b0; boundary=b1", "several boundaries"),
        ("multipart/form-data; boundary=b0, multipart/form-data; boundary=b0", "ambiguous"),
        ("multipart/form-data; boundary*=utf-8''b0", "ambiguous"),
        ("multipart/form-data; boundary=b0; charset=utf-16", "charset"),
        ("multipart/form-data; boundary=b1", "does not begin with the boundary"),
    ] {
        let message = refusal(&body, content_type);
        assert!(message.contains(cause), "{content_type}: {message} and not {cause}");
    }
}

#[test]
fn an_upload_of_another_type_is_json() {
    let json = br#"{"input":"hi","model":"tts-1"}"#;
    let types = [None, Some("application/json"), Some("multipart/mixed; boundary=b0"), Some("text/plain")];
    for content_type in types {
        let read =
            Body::read_bytes(json, Api::ModelOnly, &Options { content_type, ..Options::default() }).unwrap();
        assert_eq!((read.model.as_deref(), read.is_form), (Some("tts-1"), false));
        assert_eq!(&json[read.model_span.unwrap()], b"\"tts-1\"");
    }
    let body = form(&[field("model", "m")]);
    let read = Body::read_bytes(body.as_bytes(), Api::Chat, &options(TYPE));
    assert!(read.is_err(), "the body of a chat is no form");
}

#[test]
fn the_beginning_of_a_form_has_the_model_as_soon_as_its_field_is_whole() {
    let model = form(&[field("language", "de"), field("model", "m"), part(FILE_HEAD, "RIFF")]);
    let known_from = model.find("\r\n--b0\r\nContent-Disposition: form-data; name=\"file\"").unwrap() + 8;
    for end in 0..=model.len() {
        let completed = complete(model.as_bytes()[..end].to_vec(), Api::ModelOnly, &options(TYPE));
        let read = completed.as_deref().map(|bytes| read_as(bytes, TYPE).unwrap());
        let model = read.and_then(|read| read.model).map(Cow::into_owned);
        assert_eq!(model.as_deref(), (end >= known_from).then_some("m"), "{end} bytes");
    }
    assert_eq!(complete(model.into_bytes(), Api::ModelOnly, &options("multipart/form-data")), None);
}

#[test]
fn only_the_bytes_of_the_model_change() {
    let body = form(&[part(FILE_HEAD, "RIFF\0"), field("model", "whisper-1"), field("prompt", "whisper-1")]);
    let span = read_as(body.as_bytes(), TYPE).unwrap().model_span;
    let renamed = name_model_in_form(body.as_bytes(), span, "large \"v3\"");
    let expected =
        form(&[part(FILE_HEAD, "RIFF\0"), field("model", "large \"v3\""), field("prompt", "whisper-1")]);
    assert_eq!(renamed, expected.as_bytes());
    assert_eq!(name_model_in_form(body.as_bytes(), None, "x"), body.as_bytes());
}

#[test]
fn a_form_of_any_length_is_read_in_a_time_that_grows_with_it() {
    let parts = field("a", "").repeat(200_000);
    for (body, model) in [
        (form(&[parts, field("model", "m")]), Some("m")),
        (form(&[part(FILE_HEAD, &"\r\n--b".repeat(2_000_000)), field("model", "m")]), Some("m")),
        (form(&[part(&format!("{FILE_HEAD}{}", "\r\na:".repeat(2_000_000)), "x")]), None),
    ] {
        assert_eq!(read_as(body.as_bytes(), TYPE).unwrap().model.as_deref(), model);
    }
}
