//! `token-producer`: the tokens of prompts.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};
use crate::prompt::{Frames, Media, Resolution, TokensPerImage, VideoEstimate};

/// The `estimate` back end, four bytes to a token ([`crate::prompt`]). Its parameters define the tokens of
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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Estimate {
    image: Image,
    video: Video,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Image {
    mode: CountMode,
    default_resolution: Sides,
    #[serde(rename = "static")]
    fixed: StaticImage,
    dynamic: Dynamic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CountMode {
    #[default]
    #[serde(alias = "")]
    Dynamic,
    Static,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sides {
    width: i64,
    height: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct StaticImage {
    static_token: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Dynamic {
    factor: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Video {
    default_resolution: Sides,
    /// Seconds.
    default_duration: f64,
    tokens_per_frame: TokensPerFrame,
    frames: FrameCount,
    max_video_tokens: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TokensPerFrame {
    mode: CountMode,
    #[serde(rename = "static")]
    fixed: StaticFrame,
    dynamic: Dynamic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct StaticFrame {
    num_tokens_per_frame: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct FrameCount {
    mode: FrameMode,
    min_frames: i64,
    max_frames: i64,
    sampled: Sampled,
    strided: Strided,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum FrameMode {
    #[default]
    #[serde(alias = "")]
    Sampled,
    Strided,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Sampled {
    #[serde(rename = "sampleFPS")]
    sample_fps: f64,
    temporal_patch_size: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Strided {
    #[serde(rename = "defaultSourceFPS")]
    default_source_fps: f64,
    frame_stride: i64,
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
        let Some(Estimate { image, video }) = &self.estimate else { return Media::default() };
        let static_token = image.fixed.static_token;
        let image = tokens_per_image(image.mode, static_token, image.dynamic, image.default_resolution);
        Media { image, video: video.estimate() }
    }
}

impl Video {
    fn estimate(&self) -> VideoEstimate {
        let default = VideoEstimate::default();
        let TokensPerFrame { mode, fixed, dynamic } = self.tokens_per_frame;
        let per_frame = tokens_per_image(mode, fixed.num_tokens_per_frame, dynamic, self.default_resolution);
        VideoEstimate {
            per_frame,
            frames: self.frames.frames(),
            min_frames: positive(self.frames.min_frames),
            max_frames: positive(self.frames.max_frames),
            default_duration: above_zero(self.default_duration).unwrap_or(default.default_duration),
            max_tokens: positive(self.max_video_tokens),
        }
    }
}

impl FrameCount {
    fn frames(&self) -> Frames {
        match self.mode {
            FrameMode::Sampled => Frames::Sampled {
                per_second: above_zero(self.sampled.sample_fps).unwrap_or(2.0),
                merged: positive(self.sampled.temporal_patch_size).unwrap_or(1),
            },
            FrameMode::Strided => Frames::Strided {
                source_per_second: above_zero(self.strided.default_source_fps).unwrap_or(24.0),
                stride: positive(self.strided.frame_stride).unwrap_or(1),
            },
        }
    }
}

fn tokens_per_image(mode: CountMode, fixed: i64, dynamic: Dynamic, sides: Sides) -> TokensPerImage {
    match mode {
        CountMode::Static => TokensPerImage::Fixed(positive(fixed).unwrap_or(1)),
        CountMode::Dynamic => {
            let side =
                |side, default| positive(side).and_then(|side| u32::try_from(side).ok()).unwrap_or(default);
            let Resolution { width, height } = Resolution::DEFAULT;
            TokensPerImage::ByArea {
                pixels_per_token: positive(dynamic.factor).unwrap_or(1024),
                default: Resolution { width: side(sides.width, width), height: side(sides.height, height) },
            }
        }
    }
}

fn positive(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number > 0)
}

fn above_zero(number: f64) -> Option<f64> {
    (number > 0.0 && number.is_finite()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::VideoHints;
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
