//! The content of messages, system texts and tool results.

use std::borrow::Cow;

use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::json::{self, Array, Object, Pass, Reader, Str, element, key, raw_value, value};
use crate::request::body::Fault;
use crate::request::body::field::{Scope, StringField};
use crate::request::body::format::messages::MessageContent;
use crate::request::prompt::{Pieces, Text, resolution_of_base64, resolution_of_data_url};

/// The beginning of blocks in the system text that change with every request; model servers drop them.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// The place of blocks, on which their part of the prompt depends.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    System,
    Message,
    ToolResult,
}

/// A string, or blocks.
pub(super) enum Content<'a> {
    Text(Text<'a>),
    /// The prompt's parts from the blocks in their order, and the parts that follow after all blocks.
    Blocks {
        pieces: Pieces<'a>,
        after: Option<Pieces<'a>>,
    },
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl<'a> MessageContent<'a> for Content<'a> {
    fn member(&mut self, name: &str, message: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "content" => *self = value(message, ContentReader { scope, place: Place::Message })?,
            _ => value(message, Pass)?,
        }
        Ok(())
    }

    fn append_to(self, out: &mut Pieces<'a>) {
        match self {
            Self::Text(text) => out.text(text),
            Self::Blocks { pieces, after } => {
                out.append(pieces);
                if let Some(after) = after {
                    out.append(after);
                }
            }
        }
    }
}

/// A string, or an array of blocks.
pub(super) struct ContentReader<'s, 'c> {
    pub(super) scope: &'s Scope<'c>,
    pub(super) place: Place,
}

impl<'a> Reader<'a> for ContentReader<'_, '_> {
    type Value = Content<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("content must be a string or an array of content blocks"));
        Content::default()
    }

    fn null(self) -> Self::Value {
        Content::default()
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        Content::Text(self.scope.text_of(value))
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let Self { scope, place } = self;
        let mut blocks =
            Blocks { scope, place, pieces: Pieces::new(scope.options.keep_bytes), images: None, texts: 0 };
        while element(&mut array, BlockReader { blocks: &mut blocks })?.is_some() {}
        Ok(Content::Blocks { pieces: blocks.pieces, after: blocks.images })
    }
}

/// Blocks while they are read.
struct Blocks<'s, 'c, 'a> {
    scope: &'s Scope<'c>,
    place: Place,
    pieces: Pieces<'a>,
    /// The images of a tool's result.
    images: Option<Pieces<'a>>,
    /// The number of texts.
    texts: u64,
}

impl<'a> Blocks<'_, '_, 'a> {
    fn add(&mut self, block: BlockFields<'a>) {
        let Self { scope, place, pieces, images, texts } = self;
        match (place, block.kind()) {
            (Place::System, "text") if block.text.kept.starts_with(BILLING_HEADER) => {}
            (Place::System | Place::Message, "text") => pieces.text(block.text),
            // The texts of a result are joined by line breaks, its images follow.
            (Place::ToolResult, "text") => {
                if *texts > 0 {
                    pieces.text(Text::borrowed("\n"));
                }
                pieces.text(block.text);
                *texts += 1;
            }
            (Place::ToolResult, "image") => {
                let images = images.get_or_insert_with(|| Pieces::new(scope.options.keep_bytes));
                block.source.append_as_url(images, scope);
            }
            (Place::Message, _) => block.append_to(pieces, scope),
            // System texts and tool results have no other blocks in the prompt.
            _ => {}
        }
    }
}

/// The fields of a block of any type.
#[derive(Default)]
struct BlockFields<'a> {
    kind: Option<Cow<'a, str>>,
    text: Text<'a>,
    thinking: Text<'a>,
    id: Text<'a>,
    name: Text<'a>,
    /// The JSON of a tool's input, as the client wrote it; read only in messages.
    input: Text<'a>,
    source: ImageSource<'a>,
    content: Option<Box<Content<'a>>>,
}

impl<'a> BlockFields<'a> {
    fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    fn append_to(self, pieces: &mut Pieces<'a>, scope: &Scope<'_>) {
        match self.kind() {
            "image" => self.source.append(pieces, scope),
            "thinking" => pieces.text(self.thinking),
            "tool_use" => {
                pieces.text(self.id);
                pieces.text(self.name);
                pieces.text(self.input);
            }
            "tool_result" => {
                if let Some(content) = self.content {
                    content.append_to(pieces);
                }
            }
            _ => {}
        }
    }
}

/// The text of a block. The kept part is long enough for the billing header to be recognized.
fn block_text<'a>(scope: &Scope<'_>, text: Str<'a, '_>) -> Text<'a> {
    Text::of_string(text, scope.options.keep_bytes.max(BILLING_HEADER.len()))
}

/// Reads a block and adds it to `blocks`: a block is large, and returning it would cost more than reading it.
struct BlockReader<'b, 's, 'c, 'a> {
    blocks: &'b mut Blocks<'s, 'c, 'a>,
}

impl<'a> Reader<'a> for BlockReader<'_, '_, '_, 'a> {
    type Value = ();

    fn other(self) {
        self.blocks.scope.fault(Fault::Field("a content block must be an object"));
    }

    fn null(self) {}

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<()> {
        let Blocks { scope, place, .. } = *self.blocks;
        let rule = "a content block's type, text, thinking, id and name must be strings";
        // A block without members adds nothing, and making one would cost more than reading it.
        let mut block = None;
        while let Some(name) = key(&mut object)? {
            let block = block.get_or_insert_with(BlockFields::default);
            // The type may come last, so the fields of all types are read.
            let field = match &*name {
                "type" => {
                    block.kind = value(&mut object, scope.name(rule))?;
                    continue;
                }
                "text" => {
                    block.text = value(&mut object, StringField { scope, rule, take: block_text })?;
                    continue;
                }
                "thinking" => &mut block.thinking,
                "id" => &mut block.id,
                "name" => &mut block.name,
                "input" if place == Place::Message => {
                    block.input = Text::whole(raw_value(&mut object)?);
                    continue;
                }
                "source" => {
                    block.source = value(&mut object, SourceReader { scope })?;
                    continue;
                }
                "content" => {
                    // A result in a result is read too: the JSON reader's depth limit ends the recursion.
                    let content = ContentReader { scope, place: Place::ToolResult };
                    block.content = Some(Box::new(value(&mut object, content)?));
                    continue;
                }
                // Not in the prompt, but a value of another type is refused.
                "tool_use_id" => {
                    let rule = "a content block's tool_use_id must be a string";
                    value(&mut object, scope.text(rule))?;
                    continue;
                }
                _ => {
                    value(&mut object, Pass)?;
                    continue;
                }
            };
            *field = value(&mut object, scope.text(rule))?;
        }
        if let Some(block) = block {
            self.blocks.add(block);
        }
        Ok(())
    }
}

/// The source of an image.
#[derive(Default)]
pub(super) struct ImageSource<'a> {
    kind: Option<Cow<'a, str>>,
    media_type: Option<Cow<'a, str>>,
    data: Option<Cow<'a, str>>,
    url: Option<Cow<'a, str>>,
}

impl ImageSource<'_> {
    fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    fn data(&self) -> Option<&str> {
        self.data.as_deref().filter(|data| !data.is_empty())
    }

    /// Appends an image of a message, identified by its URL or else its data.
    pub(super) fn append(&self, pieces: &mut Pieces<'_>, scope: &Scope<'_>) {
        let image = scope.options.media.image;
        if let Some(url) = self.url() {
            let tokens = image.of_image(url.len(), || resolution_of_data_url(url));
            pieces.media(xxh64(url.as_bytes(), 0), tokens);
        } else if let Some(data) = self.data() {
            let tokens = image.of_image(data.len(), || resolution_of_base64(data));
            pieces.media(xxh64(data.as_bytes(), 0), tokens);
        }
    }

    /// Appends an image of a tool's result, identified by its URL; data become a data URL.
    pub(super) fn append_as_url(&self, pieces: &mut Pieces<'_>, scope: &Scope<'_>) {
        // A source of the type `url` has no image without one, even if it has data.
        if self.url().is_some() || self.kind.as_deref() == Some("url") {
            if self.url().is_some() {
                self.append(pieces, scope);
            }
            return;
        }
        let Some(data) = self.data() else { return };
        let media_type = self.media_type.as_deref().filter(|name| !name.is_empty()).unwrap_or("image/jpeg");
        // The hash of the data URL, without a copy of the data, which may be megabytes.
        let mut hash = Xxh64::new(0);
        for part in ["data:", media_type, ";base64,", data] {
            hash.update(part.as_bytes());
        }
        let resolution = || media_type.starts_with("image/").then(|| resolution_of_base64(data)).flatten();
        pieces.media(hash.digest(), scope.options.media.image.of_image(data.len(), resolution));
    }
}

pub(super) struct SourceReader<'s, 'c> {
    pub(super) scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for SourceReader<'_, '_> {
    type Value = ImageSource<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("a content block's source must be an object"));
        ImageSource::default()
    }

    fn null(self) -> Self::Value {
        ImageSource::default()
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut source = ImageSource::default();
        while let Some(name) = key(&mut object)? {
            let field = match &*name {
                "type" => &mut source.kind,
                "media_type" => &mut source.media_type,
                "data" => &mut source.data,
                "url" => &mut source.url,
                _ => {
                    value(&mut object, Pass)?;
                    continue;
                }
            };
            let rule = "a source's type, media_type, data and url must be strings";
            *field = value(&mut object, self.scope.name(rule))?;
        }
        Ok(source)
    }
}
