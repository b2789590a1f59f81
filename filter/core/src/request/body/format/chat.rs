//! Chat completions: tools, then role and content of every message, without separators.

use std::borrow::Cow;

use xxhash_rust::xxh64::{Xxh64, xxh64};

use super::messages::{MessageContent, MessageList};
use crate::json::{self, Array, Object, Pass, Reader, Str, element, key, value};
use crate::request::body::field::{IfCount, Kind, Scope, Typed};
use crate::request::body::object::{Format, Rules};
use crate::request::body::{Fault, Parser, canonical};
use crate::request::prompt::{Pieces, Prompt, Text, audio_tokens, resolution_of_data_url};

#[derive(Default)]
pub(super) struct Chat<'a> {
    tools: Option<Text<'a>>,
    messages: Option<Pieces<'a>>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
}

impl<'a> Format<'a> for Chat<'a> {
    const RULES: Rules = Rules {
        incomplete: "invalid chat completions request: must have valid messages field",
        ..Rules::new(Parser::OpenAi, &["chat/completions", "chat/completions/render"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        // The EPP decodes some fields for other tokenizers, and so refuses a wrong type in them.
        let typed = |kind| Typed { scope, kind, rule: "a field has the wrong type" };
        match name {
            "messages" => self.messages = value(object, MessageList::<Content<'_>>::new(scope))?,
            "tools" => self.tools = tools(canonical::member(object, scope)?, scope),
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            "max_completion_tokens" => self.max_completion_tokens = value(object, IfCount)?,
            "chat_template" => value(object, typed(Kind::Text))?,
            "chat_template_kwargs" => value(object, typed(Kind::Object))?,
            "documents" => value(object, typed(Kind::Array))?,
            "add_generation_prompt" | "continue_final_message" | "return_assistant_tokens_mask" => {
                value(object, typed(Kind::Boolean))?;
            }
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let messages = self.messages?;
        let Some(tools) = self.tools else { return Some(Prompt::one(messages)) };
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        pieces.text(tools);
        pieces.append(messages);
        Some(Prompt::one(pieces))
    }
}

/// The text of the tools; `None` if there are none.
fn tools<'a>(tools: Text<'a>, scope: &Scope<'_>) -> Option<Text<'a>> {
    if canonical::is_null(&tools) || canonical::is_empty_array(&tools) {
        return None;
    }
    if !canonical::is_array(&tools) {
        scope.fault(Fault::Field("tools must be an array"));
    }
    Some(tools)
}

/// A string, or the prompt's parts from an array of blocks.
pub(super) enum Content<'a> {
    Text(Text<'a>),
    Blocks(Pieces<'a>),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl<'a> MessageContent<'a> for Content<'a> {
    fn member(&mut self, name: &str, message: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "content" => *self = value(message, ChatContentReader { scope })?,
            "tool_calls" => {
                let rule = "a message's tool_calls must be an array";
                value(message, Typed { scope, kind: Kind::Array, rule })?;
            }
            _ => value(message, Pass)?,
        }
        Ok(())
    }

    fn append_to(self, pieces: &mut Pieces<'a>) {
        match self {
            Self::Text(text) => pieces.text(text),
            Self::Blocks(blocks) => pieces.append(blocks),
        }
    }
}

struct ChatContentReader<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for ChatContentReader<'_, '_> {
    type Value = Content<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("a message's content must be a string, null or an array of blocks"));
        Content::default()
    }

    fn null(self) -> Self::Value {
        Content::default()
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        Content::Text(self.scope.text_of(value))
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let scope = self.scope;
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        while element(&mut array, Block { scope, pieces: &mut pieces })?.is_some() {}
        Ok(Content::Blocks(pieces))
    }
}

/// One block of a message's content.
pub(super) struct Block<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c>,
    pub(super) pieces: &'s mut Pieces<'a>,
}

impl<'a> Reader<'a> for Block<'_, '_, 'a> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field("a content block must be an object"));
    }

    fn null(self) {}

    // vLLM takes a string among the blocks for a text.
    fn string(self, value: Str<'a, '_>) {
        if self.scope.options.refuses_as_epp {
            return self.other();
        }
        self.pieces.text(self.scope.text_of(value));
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<()> {
        let Self { scope, pieces } = self;
        let rule = "a block's type and text must be strings";
        let mut kind = None;
        // The type of a block without one, as vLLM finds it.
        let mut implied = None;
        let mut text = Text::default();
        let (mut image, mut video) = (Asset::default(), Asset::default());
        let mut audio = Asset::default();
        while let Some(name) = key(&mut object)? {
            match &*name {
                "type" => kind = value(&mut object, scope.name(rule))?,
                "text" => text = value(&mut object, scope.text(rule))?,
                "image_url" => {
                    implied = Some("image_url");
                    image = value(&mut object, AssetReader { scope, fields: &["url"] })?;
                }
                "video_url" => {
                    implied = Some("video_url");
                    video = value(&mut object, AssetReader { scope, fields: &["url"] })?;
                }
                "input_audio" => {
                    implied = Some("input_audio");
                    audio = value(&mut object, AssetReader { scope, fields: &["data", "format"] })?;
                }
                _ => value(&mut object, Pass)?,
            }
        }
        let options = scope.options;
        let implied = implied.filter(|_| !options.refuses_as_epp);
        match kind.as_deref().or(implied).unwrap_or_default() {
            "text" => pieces.text(text),
            "image_url" => {
                let url = image.first();
                let tokens = options.media.image.of_image(url.len(), || resolution_of_data_url(url));
                pieces.media(image.hash(), tokens);
            }
            "video_url" => pieces.media(video.hash(), options.media.video.of_video(&options.video)),
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

struct AssetReader<'s, 'c> {
    scope: &'s Scope<'c>,
    fields: &'static [&'static str],
}

impl<'a> Reader<'a> for AssetReader<'_, '_> {
    type Value = Asset<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("an asset of a block must be an object"));
        Asset::default()
    }

    fn null(self) -> Self::Value {
        Asset::default()
    }

    // vLLM takes a string for the URL.
    fn string(self, value: Str<'a, '_>) -> Self::Value {
        if self.scope.options.refuses_as_epp {
            return self.other();
        }
        Asset([Some(value.into_cow()), None])
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let scope = self.scope;
        let mut asset = Asset::default();
        while let Some(name) = key(&mut object)? {
            let mut fields = self.fields.iter().zip(&mut asset.0);
            if let Some((_, field)) = fields.find(|(field, _)| **field == &*name) {
                let rule = "an asset's url, data and format must be strings";
                *field = value(&mut object, scope.name(rule))?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(asset)
    }
}
