//! `token-producer`: the tokens of prompts.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::token_estimate::Estimate;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};
use crate::request::prompt::Media;

/// The `estimate` back end, four bytes to a token ([`crate::request::prompt`]). Its parameters define the tokens of
/// images and videos; a number of 0 or less means the default.
///
/// The EPP's other back ends, a model server or a tokenizer process, are not supported.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenProducer {
    estimate: Option<Estimate>,
    vllm: Option<IgnoredAny>,
    uds_tokenizer_config: Option<IgnoredAny>,
    model_name: String,
}

impl Plugin for TokenProducer {
    fn check(&self) -> Result<(), String> {
        let others = [
            ("vllm", self.vllm.is_some()),
            ("udsTokenizerConfig", self.uds_tokenizer_config.is_some()),
            ("modelName", !self.model_name.is_empty()),
        ];
        for (parameter, is_given) in others {
            allow(!is_given, parameter, "given", "estimate, the only supported back end")?;
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { media: Some(self.media()), ..Roles::default() }
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
        [image.tokens(|| Some(Resolution { width, height })), image.tokens(|| None)]
    }

    fn video_tokens(video: &serde_json::Value) -> u64 {
        media(&json!({"video": video})).video.tokens(&VideoHints::default())
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
        assert_eq!(spelled_out.video.tokens(&hints), Media::default().video.tokens(&hints));
        assert_eq!(spelled_out.image, Media::default().image);
    }

    #[test]
    fn other_back_ends_are_refused_by_name() {
        for other in
            [json!({"vllm": {"url": "x"}}), json!({"udsTokenizerConfig": {}}), json!({"modelName": "m"})]
        {
            let error = serde_json::from_value::<TokenProducer>(other.clone()).unwrap().check().unwrap_err();
            let name = other.as_object().unwrap().keys().next().unwrap();
            assert!(error.contains(name.as_str()) && error.contains("estimate"), "{error}");
        }
    }
}
