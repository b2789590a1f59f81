//! The tokens of an image, a video or audio.
//!
//! Formulas and defaults are the same as in the EPP's `estimate` tokenizer. The size of an image and the
//! duration of a video are the client's word: a few bytes can claim any number of tokens. So an item has a
//! maximum, and the tokens that only a claim gives it are counted apart, because they are no load.

use super::BYTES_PER_TOKEN;

/// Maximum number of tokens of an image whose size its file claims: the default of Qwen2-VL's image
/// processor, 12 845 056 pixels in patches of 28 × 28, the largest among those of models that are commonly
/// served.
pub const MAX_IMAGE_TOKENS: u64 = 16_384;

/// Maximum number of tokens of a video whose duration or resolution the request claims, where the
/// configuration sets none: the context of most models that are served. By default, qwen-vl-utils cut videos
/// to 115 200 tokens.
pub const MAX_VIDEO_TOKENS: u64 = 131_072;

/// Tokens of an image, a video or audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTokens {
    /// All of them.
    pub count: u64,
    /// Tokens among them that only the client's word gives the item: neither the bytes that carry it, as text
    /// of this length, nor the configuration.
    pub claimed: u64,
}

impl From<u64> for MediaTokens {
    /// Tokens of which none is claimed.
    fn from(count: u64) -> Self {
        Self { count, claimed: 0 }
    }
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Resolution {
    /// The resolution of images and videos of unknown resolution: 360p.
    pub const DEFAULT: Self = Self { width: 640, height: 360 };

    /// Reads `WIDTHxHEIGHT` (`x` or `X`, blanks around the numbers allowed), both at least 1.
    pub fn parse(text: &str) -> Option<Self> {
        let (width, height) = text.split_once(['x', 'X'])?;
        let side = |text: &str| text.trim().parse().ok().filter(|&side| side > 0);
        Some(Self { width: side(width)?, height: side(height)? })
    }

    fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// Tokens of one image or video frame; never less than 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokensPerImage {
    /// The same for every image.
    Fixed(u64),
    /// Proportional to the image's area.
    ByArea {
        /// Pixels for one token; 0 counts as the default, 1024.
        pixels_per_token: u64,
        /// The resolution of images of unknown resolution.
        default: Resolution,
    },
}

impl Default for TokensPerImage {
    fn default() -> Self {
        Self::ByArea { pixels_per_token: 1024, default: Resolution::DEFAULT }
    }
}

impl TokensPerImage {
    /// Tokens of an image that `bytes` of the request carry. `resolution` is called only if the number
    /// depends on it.
    pub fn of_image(self, bytes: usize, resolution: impl FnOnce() -> Option<Resolution>) -> MediaTokens {
        let resolution = match self {
            Self::Fixed(_) => None,
            Self::ByArea { .. } => resolution(),
        };
        let count = self.tokens(resolution);
        if resolution.is_none() {
            return count.into();
        }
        let count = count.min(MAX_IMAGE_TOKENS);
        MediaTokens { count, claimed: count.saturating_sub(tokens_of_bytes(bytes as u64)) }
    }

    /// Tokens of an image or frame of this resolution.
    fn tokens(self, resolution: Option<Resolution>) -> u64 {
        match self {
            Self::Fixed(tokens) => tokens.max(1),
            Self::ByArea { pixels_per_token, default } => {
                let pixels = resolution.unwrap_or(default).pixels();
                (pixels / if pixels_per_token == 0 { 1024 } else { pixels_per_token }).max(1)
            }
        }
    }
}

/// The frames of a video that a model sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Frames {
    /// A number of frames per second, merged in groups.
    Sampled {
        /// Frames per second that are sampled.
        per_second: f64,
        /// Frames merged into one; 0 and 1 merge nothing.
        merged: u64,
    },
    /// Every `stride`-th frame of the source.
    Strided {
        /// Frames per second of the source, if the request does not name them.
        source_per_second: f64,
        /// At least 1; 0 counts as 1.
        stride: u64,
    },
}

/// Estimates the tokens of a video: frames times tokens per frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VideoEstimate {
    /// Tokens of one frame.
    pub per_frame: TokensPerImage,
    /// Which frames count.
    pub frames: Frames,
    /// Minimum number of frames, before merging.
    pub min_frames: Option<u64>,
    /// Maximum number of frames, before merging.
    pub max_frames: Option<u64>,
    /// Seconds of a video whose duration the request does not name.
    pub default_duration: f64,
    /// Maximum number of tokens of one video. With it, the hints of a request are believed up to here.
    pub max_tokens: Option<u64>,
}

impl Default for VideoEstimate {
    fn default() -> Self {
        Self {
            per_frame: TokensPerImage::default(),
            frames: Frames::Sampled { per_second: 2.0, merged: 0 },
            min_frames: None,
            max_frames: None,
            default_duration: 10.0,
            max_tokens: None,
        }
    }
}

/// Properties of a request's videos, from its headers. `None`: the header is absent or not a positive number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VideoHints {
    /// `x-llm-d-video-fps`: frames per second of the source.
    pub frames_per_second: Option<f64>,
    /// `x-llm-d-video-duration-seconds`.
    pub duration: Option<f64>,
    /// `x-llm-d-video-resolution`.
    pub resolution: Option<Resolution>,
}

impl VideoHints {
    /// Reads the values of the three headers; one that is malformed counts as absent.
    pub fn from_headers(fps: Option<&str>, duration: Option<&str>, resolution: Option<&str>) -> Self {
        let positive =
            |text: &str| text.parse().ok().filter(|&number: &f64| number > 0.0 && number.is_finite());
        Self {
            frames_per_second: fps.and_then(positive),
            duration: duration.and_then(positive),
            resolution: resolution.and_then(Resolution::parse),
        }
    }
}

impl VideoEstimate {
    /// Tokens of one video; at least 1. Those that the hints add to the configuration's own estimate are
    /// claimed, unless the configuration bounds them.
    pub fn of_video(&self, hints: &VideoHints) -> MediaTokens {
        let count = self.tokens(hints);
        if *hints == VideoHints::default() || self.max_tokens.is_some() {
            return count.into();
        }
        let own = self.tokens(&VideoHints::default());
        let count = count.min(MAX_VIDEO_TOKENS.max(own));
        MediaTokens { count, claimed: count.saturating_sub(own) }
    }

    fn tokens(&self, hints: &VideoHints) -> u64 {
        let frames = self.frame_count(hints);
        let tokens = frames.saturating_mul(self.per_frame.tokens(hints.resolution));
        tokens.min(self.max_tokens.unwrap_or(u64::MAX)).max(1)
    }

    fn frame_count(&self, hints: &VideoHints) -> u64 {
        let duration = hints.duration.unwrap_or(self.default_duration);
        let clamp =
            |frames: u64| frames.max(self.min_frames.unwrap_or(0)).min(self.max_frames.unwrap_or(u64::MAX));
        match self.frames {
            Frames::Sampled { per_second, merged } => clamp(whole(duration * per_second)) / merged.max(1),
            Frames::Strided { source_per_second, stride } => {
                let per_second = hints.frames_per_second.unwrap_or(source_per_second);
                clamp(whole(duration * per_second) / stride.max(1))
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is the intent")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// How the images and videos of a request are counted; [`Media::default`] is the EPP's default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Media {
    /// Tokens of an image.
    pub image: TokensPerImage,
    /// Tokens of a video.
    pub video: VideoEstimate,
}

/// Tokens of audio whose data and format name have `bytes` bytes together; at least 1.
pub(crate) fn audio_tokens(bytes: u64) -> u64 {
    tokens_of_bytes(bytes).max(1)
}

/// Tokens of a text of this length.
fn tokens_of_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN as u64)
}
