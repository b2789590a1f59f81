//! The `estimate` back end of `token-producer`: how many tokens images and videos have. A number of 0 or less
//! means the default.

use serde::Deserialize;

use crate::request::prompt::{Frames, Media, Resolution, TokensPerImage, VideoEstimate};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Estimate {
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

impl Estimate {
    pub(super) fn media(&self) -> Media {
        let Self { image, video } = self;
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
