//! `token-producer`: the tokens of prompts.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use super::token_estimate::Estimate;
use crate::plugin::{Plugin, Roles};
use crate::request::prompt::Media;

/// The `estimate` back end, four bytes to a token ([`crate::request::prompt`]). Its parameters define the
/// tokens of images and videos; a number of 0 or less means the default.
///
/// The EPP's other back ends, a model server or a tokenizer process, are checked, and tokens are estimated in
/// their place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenProducer {
    estimate: Option<Estimate>,
    vllm: Option<RenderServer>,
    uds_tokenizer_config: Option<UdsTokenizer>,
    /// The model of the other back ends; alone it means the model server at the default URL.
    model_name: String,
}

/// `vllm`: a server that returns the tokens of a prompt. It is not called.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RenderServer {
    url: String,
    #[serde(rename = "timeout", deserialize_with = "crate::plugin::parameter::duration::deserialize")]
    _timeout: Duration,
    #[serde(rename = "mmTimeout", deserialize_with = "crate::plugin::parameter::duration::deserialize")]
    _mm_timeout: Duration,
}

impl Default for RenderServer {
    fn default() -> Self {
        Self {
            url: "http://localhost:8000".to_owned(),
            _timeout: Duration::from_secs(5),
            _mm_timeout: Duration::from_secs(30),
        }
    }
}

/// `udsTokenizerConfig`: a tokenizer process behind a socket. It is not called. Its other fields are those of
/// a library, and not checked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UdsTokenizer {
    socket_file: String,
}

impl Plugin for TokenProducer {
    fn check(&self) -> Result<(), String> {
        let vllm = self.vllm.is_some() || !self.model_name.is_empty() && self.uds_tokenizer_config.is_none();
        let back_ends = [self.estimate.is_some(), vllm, self.uds_tokenizer_config.is_some()];
        if back_ends.into_iter().filter(|is_given| *is_given).count() > 1 {
            return Err(
                "only one of estimate, vllm and udsTokenizerConfig may be set; modelName is for the last two"
                    .to_owned(),
            );
        }
        if self.estimate.is_none() && self.model_name.is_empty() && back_ends.contains(&true) {
            return Err("modelName is empty; vllm and udsTokenizerConfig need one".to_owned());
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { media: Some(self.media()), ..Roles::default() }
    }

    fn warnings(&self) -> Vec<String> {
        let not_called = match (&self.vllm, &self.uds_tokenizer_config) {
            (_, Some(UdsTokenizer { socket_file, .. })) => format!("the tokenizer at {socket_file:?}"),
            (Some(RenderServer { url, .. }), None) => url.clone(),
            (None, None) if self.model_name.is_empty() => return Vec::new(),
            (None, None) => RenderServer::default().url,
        };
        vec![format!("tokens are estimated, four bytes to a token; {not_called} is not called")]
    }
}

impl TokenProducer {
    /// How images, videos and audio are counted.
    pub fn media(&self) -> Media {
        self.estimate.as_ref().map_or_else(Media::default, Estimate::media)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::prompt::{Resolution, VideoHints};
    use crate::test;
    use serde_json::json;

    fn media(estimate: &serde_json::Value) -> Media {
        serde_json::from_value::<TokenProducer>(json!({"estimate": estimate})).unwrap().media()
    }

    fn image_tokens(image: &serde_json::Value, width: u32, height: u32) -> [u64; 2] {
        let image = media(&json!({"image": image})).image;
        [Some(Resolution { width, height }), None].map(|it| image.of_image(1 << 20, || it).count)
    }

    fn video_tokens(video: &serde_json::Value) -> u64 {
        media(&json!({"video": video})).video.of_video(&VideoHints::default()).count
    }

    #[test]
    fn images_count_by_their_area_or_by_a_fixed_number() {
        assert_eq!(image_tokens(&json!({}), 1024, 1024), [1024, 225]);
        assert_eq!(
            image_tokens(&json!({"mode": "dynamic", "dynamic": {"factor": 512}}), 1024, 512),
            [1024, 450]
        );
        let resolution = json!({"defaultResolution": {"width": 64, "height": 32}});
        assert_eq!(image_tokens(&resolution, 1024, 1024), [1024, 2]);
        assert_eq!(image_tokens(&json!({"mode": "static", "static": {"staticToken": 99}}), 9, 9), [99, 99]);
        assert_eq!(image_tokens(&json!({"mode": "static"}), 1024, 1024), [1, 1]);
        assert_eq!(image_tokens(&json!({"dynamic": {"factor": -3}}), 1024, 1024), [1024, 225]);
    }

    #[test]
    fn videos_count_by_frames_and_tokens_of_a_frame() {
        assert_eq!(video_tokens(&json!({})), 20 * 225);
        assert_eq!(
            video_tokens(&json!({"frames": {"sampled": {"sampleFPS": 4, "temporalPatchSize": 2}}})),
            20 * 225
        );
        let strided = json!({"mode": "strided", "maxFrames": 32, "strided": {"frameStride": 5}});
        let fixed = json!({"mode": "static", "static": {"numTokensPerFrame": 70}});
        assert_eq!(video_tokens(&json!({"frames": strided, "tokensPerFrame": fixed})), 32 * 70);
        assert_eq!(video_tokens(&json!({"defaultDuration": 1.5, "maxVideoTokens": 500})), 500);
        assert_eq!(video_tokens(&json!({"frames": {"minFrames": 100}})), 100 * 225);
    }

    #[test]
    fn without_parameters_the_defaults_apply() {
        assert_eq!(TokenProducer::default().media(), Media::default());
        let spelled_out = media(&json!({"image": {}, "video": {}}));
        let hints = VideoHints::default();
        assert_eq!(spelled_out.video.of_video(&hints), Media::default().video.of_video(&hints));
        assert_eq!(spelled_out.image, Media::default().image);
    }

    fn producer(parameters: serde_json::Value) -> TokenProducer {
        serde_json::from_value(parameters).unwrap()
    }

    #[test]
    fn tokens_are_estimated_in_place_of_other_back_ends() {
        for (parameters, not_called) in [
            (
                json!({"modelName": "m", "vllm": {"url": "http://render:8000", "timeout": "1s"}}),
                "http://render:8000",
            ),
            (json!({"modelName": "m"}), "http://localhost:8000"),
            (
                json!({"modelName": "m", "udsTokenizerConfig": {"socketFile": "/s", "x": [1]}}),
                "the tokenizer at \"/s\"",
            ),
        ] {
            let producer = producer(parameters);
            assert_eq!((producer.check(), producer.media()), (Ok(()), Media::default()));
            let warning = format!("tokens are estimated, four bytes to a token; {not_called} is not called");
            assert_eq!(producer.warnings(), [warning]);
        }
        for estimate in [json!({}), json!({"estimate": {}})] {
            assert_eq!(producer(estimate).warnings(), Vec::<String>::new());
        }
    }

    #[test]
    fn other_back_ends_have_a_model_and_are_alone() {
        for (parameters, expected) in [
            (json!({"vllm": {}}), "modelName is empty"),
            (json!({"udsTokenizerConfig": {}}), "modelName is empty"),
            (json!({"estimate": {}, "modelName": "m"}), "only one of"),
            (json!({"estimate": {}, "vllm": {}}), "only one of"),
            (json!({"vllm": {}, "udsTokenizerConfig": {}, "modelName": "m"}), "only one of"),
        ] {
            let error = producer(parameters.clone()).check().unwrap_err();
            assert!(error.starts_with(expected), "{parameters}: {error}");
        }
        for parameters in [json!({"vllm": {"x": 1}}), json!({"vllm": {"timeout": "5"}})] {
            assert!(serde_json::from_value::<TokenProducer>(parameters.clone()).is_err(), "{parameters}");
        }
    }
}
