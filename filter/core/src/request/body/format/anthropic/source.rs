//! The images of content blocks.

use std::borrow::Cow;

use serde::de::MapAccess;
use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::json::{Pass, Reader, key, value};
use crate::request::body::Fault;
use crate::request::body::field::Scope;
use crate::request::prompt::{Pieces, resolution_of_base64, resolution_of_data_url};

/// The source of an image.
#[derive(Default)]
pub(super) struct Source<'a> {
    kind: Option<Cow<'a, str>>,
    media_type: Option<Cow<'a, str>>,
    data: Option<Cow<'a, str>>,
    url: Option<Cow<'a, str>>,
}

impl Source<'_> {
    fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    fn data(&self) -> Option<&str> {
        self.data.as_deref().filter(|data| !data.is_empty())
    }

    /// Appends an image of a message, identified by its URL or else its data.
    pub(super) fn append(&self, pieces: &mut Pieces<'_>, scope: &Scope<'_, '_>) {
        let image = scope.options.media.image;
        if let Some(url) = self.url() {
            pieces.media(xxh64(url.as_bytes(), 0), image.tokens(|| resolution_of_data_url(url)));
        } else if let Some(data) = self.data() {
            pieces.media(xxh64(data.as_bytes(), 0), image.tokens(|| resolution_of_base64(data)));
        }
    }

    /// Appends an image of a tool's result, identified by its URL; data become a data URL.
    pub(super) fn append_as_url(&self, pieces: &mut Pieces<'_>, scope: &Scope<'_, '_>) {
        if self.url().is_some() || self.kind.as_deref() == Some("url") {
            if self.url().is_some() {
                self.append(pieces, scope);
            }
            return;
        }
        let Some(data) = self.data() else { return };
        let media_type = self.media_type.as_deref().filter(|name| !name.is_empty()).unwrap_or("image/jpeg");
        let mut hash = Xxh64::new(0);
        for part in ["data:", media_type, ";base64,", data] {
            hash.update(part.as_bytes());
        }
        let resolution = || media_type.starts_with("image/").then(|| resolution_of_base64(data)).flatten();
        pieces.media(hash.digest(), scope.options.media.image.tokens(resolution));
    }
}

pub(super) struct SourceReader<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for SourceReader<'_, '_, 'a> {
    type Value = Source<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("a content block's source must be an object"));
        Source::default()
    }

    fn null(self) -> Self::Value {
        Source::default()
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut source = Source::default();
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
