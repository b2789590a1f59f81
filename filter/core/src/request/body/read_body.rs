//! A body that was read once, for several decisions.

use std::borrow::Cow;

use super::{Api, Body, BodyError, Options};
use crate::request::prompt::{Media, VideoHints};

/// A body, or its [completed](super::complete) beginning, and what was read of it.
#[derive(Debug)]
pub struct ReadBody<'b> {
    bytes: &'b [u8],
    is_whole: bool,
    api: Api,
    keep_bytes: usize,
    media: Media,
    video: VideoHints,
    refuses_as_epp: bool,
    body: Result<Body<'b>, BodyError>,
}

impl<'b> ReadBody<'b> {
    /// Reads a body, or its completed beginning.
    pub fn new(bytes: &'b [u8], is_whole: bool, api: Api, options: &Options<'_>) -> Self {
        let &Options { keep_bytes, media, video, refuses_as_epp, .. } = options;
        let body = Body::read_bytes(bytes, api, options);
        Self { bytes, is_whole, api, keep_bytes, media, video, refuses_as_epp, body }
    }

    /// The bytes that were read.
    pub fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// Whether the whole body was read.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The body as a body of this API; `None` if by these options it has to be read again. Both options are
    /// for the same headers.
    pub fn body(&self, api: Api, options: &Options<'_>) -> Option<Result<&Body<'b>, &BodyError>> {
        let has_media = self.body.as_ref().is_ok_and(|body| body.prompt.has_media());
        let counts_alike = !has_media || (self.media == options.media && self.video == options.video);
        let refuses_alike = self.refuses_as_epp == options.refuses_as_epp;
        let is_same =
            self.api == api && self.keep_bytes >= options.keep_bytes && counts_alike && refuses_alike;
        is_same.then_some(self.body.as_ref())
    }

    /// The model as text, also if its value is not a string: other values are returned as they are written.
    /// `None` if it is missing, empty or null.
    ///
    /// # Errors
    /// The body is not of its format. A body that breaks a rule of its API still has a model.
    pub fn model(&self, options: &Options<'_>) -> Result<Option<Cow<'_, str>>, BodyError> {
        match &self.body {
            Ok(body) => Ok(model_of(body, self.bytes)),
            Err(
                error @ (BodyError::Encoded { .. }
                | BodyError::NotUtf8 { .. }
                | BodyError::NotAForm { .. }
                | BodyError::NoMessage
                | BodyError::Compressed
                | BodyError::Message { .. }
                | BodyError::NotAnObject { .. }),
            ) => Err(error.clone()),
            Err(
                BodyError::Invalid { .. }
                | BodyError::NoModel
                | BodyError::NoParser { .. }
                | BodyError::UnsupportedPath { .. },
            ) => {
                // The body is JSON, whatever its content type.
                let options = Options { content_type: None, ..*options };
                let body = Body::read_bytes(self.bytes, Api::ModelOnly, &options)?;
                Ok(model_of(&body, self.bytes).map(|model| Cow::Owned(model.into_owned())))
            }
        }
    }
}

/// The model of a body that was read from these bytes.
fn model_of<'a>(body: &'a Body<'_>, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
    if let Some(model) = &body.model {
        return Some(Cow::Borrowed(model));
    }
    let value = core::str::from_utf8(bytes.get(body.model_span.clone()?)?).ok()?;
    let is_string = body.is_form || value.starts_with('"');
    (!is_string && value != "null").then_some(Cow::Borrowed(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::prompt::TokensPerImage;
    use crate::test;

    fn model(api: Api, text: &str) -> Result<Option<String>, BodyError> {
        let options = Options::default();
        let read_body = ReadBody::new(text.as_bytes(), true, api, &options);
        read_body.model(&options).map(|model| model.map(Cow::into_owned))
    }

    #[test]
    fn the_model_is_a_string_or_any_other_value_as_it_is_written() {
        for (text, expected) in [
            (r#"{"model": "m"}"#, Some("m")),
            (r#"{"model": "a\u00e9\"b"}"#, Some("aé\"b")),
            (r#"{"model": "m", "model": "n"}"#, Some("n")),
            (r#"{"model": 1.50}"#, Some("1.50")),
            (r#"{"model": true}"#, Some("true")),
            (r#"{"model": ["a", 1]}"#, Some(r#"["a", 1]"#)),
            (r#"{"model": ""}"#, None),
            (r#"{"model": null}"#, None),
            ("{}", None),
            ("null", None),
        ] {
            for api in [Api::ModelOnly, Api::Chat] {
                assert_eq!(model(api, text), Ok(expected.map(str::to_owned)), "{text} for {api:?}");
            }
        }
    }

    #[test]
    fn a_body_that_is_not_an_object_has_no_model() {
        for text in ["", "{", "[]", "x", "3", r#"{"model": "m"} x"#] {
            assert!(matches!(model(Api::Chat, text), Err(BodyError::NotAnObject { .. })), "{text}");
        }
        for text in ["{", "x", r#"{"model": "m"} x"#] {
            assert!(matches!(model(Api::ModelOnly, text), Err(BodyError::NotAnObject { .. })), "{text}");
        }
        for text in ["", " ", "[]", "3"] {
            assert_eq!(model(Api::ModelOnly, text), Ok(None), "{text}");
        }
        let options = Options::default();
        let read_body = ReadBody::new(b"{\"model\": \"\xff\"}", true, Api::Chat, &options);
        assert!(matches!(read_body.model(&options), Err(BodyError::NotUtf8 { .. })));
    }

    #[test]
    fn a_read_body_serves_for_the_same_api_and_options_that_need_no_more() {
        let with_image = r#"{"model": "m", "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]}"#;
        let options = Options::default();
        let other_media =
            Options { media: Media { image: TokensPerImage::Fixed(7), ..options.media }, ..options };
        for (text, serves_other_media) in [
            (r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}]}"#, true),
            (with_image, false),
        ] {
            let read_body = ReadBody::new(text.as_bytes(), true, Api::Chat, &options);
            let same = read_body.body(Api::Chat, &options).unwrap().unwrap();
            assert_eq!(*same, Body::read(text, Api::Chat, &options).unwrap());
            assert!(read_body.body(Api::Chat, &Options { keep_bytes: 0, ..options }).is_some());
            let longer = Options { keep_bytes: options.keep_bytes + 1, ..options };
            assert!(read_body.body(Api::Chat, &longer).is_none());
            assert!(read_body.body(Api::Completions, &options).is_none());
            assert_eq!(read_body.body(Api::Chat, &other_media).is_some(), serves_other_media, "{text}");
        }
    }
}
