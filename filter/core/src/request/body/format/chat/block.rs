//! The blocks of a message's content.

use std::borrow::Cow;

use serde::de::MapAccess;
use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::json::{Pass, Reader, key, value};
use crate::request::body::Fault;
use crate::request::body::field::Scope;
use crate::request::prompt::{Pieces, Text, audio_tokens, resolution_of_data_url};

/// One block of a message's content.
pub(super) struct Block<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
    pub(super) pieces: &'s mut Pieces<'a>,
}

impl<'a> Reader<'a> for Block<'_, '_, 'a> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field("a content block must be an object"));
    }

    fn null(self) {}

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { scope, pieces } = self;
        let rule = "a block's type and text must be strings";
        let mut kind = None;
        let mut text = Text::default();
        let (mut image, mut video) = (Asset::default(), Asset::default());
        let mut audio = Asset::default();
        while let Some(name) = key(&mut object)? {
            match &*name {
                "type" => kind = value(&mut object, scope.name(rule))?,
                "text" => text = value(&mut object, scope.text(rule))?,
                "image_url" => image = value(&mut object, AssetReader { scope, fields: &["url"] })?,
                "video_url" => video = value(&mut object, AssetReader { scope, fields: &["url"] })?,
                "input_audio" => {
                    audio = value(&mut object, AssetReader { scope, fields: &["data", "format"] })?;
                }
                _ => value(&mut object, Pass)?,
            }
        }
        let options = scope.options;
        match kind.as_deref().unwrap_or_default() {
            "text" => pieces.text(text),
            "image_url" => {
                let tokens = options.media.image.tokens(|| resolution_of_data_url(image.first()));
                pieces.media(image.hash(), tokens);
            }
            "video_url" => pieces.media(video.hash(), options.media.video.tokens(&options.video)),
            // The EPP looks for the audio under `input_audio` in both cases.
            "input_audio" | "audio_url" => pieces.media(audio.hash(), audio_tokens(audio.bytes())),
            _ => {}
        }
        Ok(())
    }
}

/// The strings that identify the image, video or audio of a block.
#[derive(Default)]
struct Asset<'a>([Option<Cow<'a, str>>; 2]);

impl Asset<'_> {
    fn first(&self) -> &str {
        let [first, _] = &self.0;
        first.as_deref().unwrap_or_default()
    }

    fn hash(&self) -> u64 {
        let [first, second] = &self.0;
        let Some(second) = second else { return xxh64(first.as_deref().unwrap_or_default().as_bytes(), 0) };
        let mut hash = Xxh64::new(0);
        hash.update(self.first().as_bytes());
        hash.update(second.as_bytes());
        hash.digest()
    }

    fn bytes(&self) -> u64 {
        self.0.iter().flatten().map(|text| text.len() as u64).sum()
    }
}

struct AssetReader<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
    fields: &'static [&'static str],
}

impl<'a> Reader<'a> for AssetReader<'_, '_, 'a> {
    type Value = Asset<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("an asset of a block must be an object"));
        Asset::default()
    }

    fn null(self) -> Self::Value {
        Asset::default()
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let scope = self.scope;
        let mut asset = Asset::default();
        while let Some(name) = key(&mut object)? {
            let mut fields = self.fields.iter().zip(&mut asset.0);
            if let Some((_, field)) = fields.find(|(field, _)| **field == name) {
                let rule = "an asset's url, data and format must be strings";
                *field = value(&mut object, scope.name(rule))?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(asset)
    }
}
