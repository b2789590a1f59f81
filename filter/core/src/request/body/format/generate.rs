//! APIs whose prompt is token ids: the engines' own generation.

use std::borrow::Cow;

use xxhash_rust::xxh64::xxh64;

use super::given::{Ids, token_id};
use crate::json::{
    self, Array, Number, Object, Pass, Reader, Str, element, key, next_number, pass_array, value,
};
use crate::request::body::field::{IfCount, Scope};
use crate::request::body::object::{Format, Model, Rules};
use crate::request::body::{Fault, Parser};
use crate::request::prompt::{BYTES_PER_TOKEN, MAX_ITEMS, Pieces, Prompt};

impl Ids {
    fn prompt<'a>(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        pieces.ids(self.ids, self.count);
        (self.count > 0).then(|| Prompt::one(pieces))
    }
}

/// vLLM: `token_ids`, `sampling_params.max_tokens`, and the placeholders and hashes of `features`.
#[derive(Default)]
pub(super) struct Generate {
    ids: Ids,
    max_tokens: Option<u64>,
    features: Features,
}

impl<'a> Format<'a> for Generate {
    const RULES: Rules = Rules {
        serves: |path| path.ends_with("inference/v1/generate"),
        not_an_object: "",
        incomplete: "invalid generate request: must have non-empty token_ids field",
        broken_field: Some("invalid generate request: "),
        ..Rules::new(Parser::VllmHttp, &["inference/v1/generate"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "token_ids" => self.ids = value(object, TokenIds { scope })?,
            "sampling_params" => self.max_tokens = value(object, Limit("max_tokens"))?,
            "features" => self.features = value(object, FeaturesReader)?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        let Self { ids: Ids { ids, count }, features, .. } = self;
        pieces.ids(ids, count);
        features.add_to(&mut pieces);
        (count > 0).then(|| Prompt::one(pieces))
    }
}

/// SGLang: `input_ids`, `sampling_params.max_new_tokens`, and `extra_key` for a salt.
#[derive(Default)]
pub(super) struct SglangGenerate<'a> {
    ids: Option<Ids>,
    max_new_tokens: Option<u64>,
    extra_key: Option<Cow<'a, str>>,
}

impl<'a> Format<'a> for SglangGenerate<'a> {
    const RULES: Rules = Rules {
        serves: |path| {
            let path = path.trim();
            matches!(path.strip_suffix('/').unwrap_or(path), "generate" | "/generate")
        },
        model: Model::Unread,
        has_cache_salt: false,
        checks_stream: true,
        not_an_object: "invalid generate request: ",
        incomplete: "invalid generate request: input_ids must be provided",
        broken_field: Some("invalid generate request: "),
        ..Rules::new(Parser::SglangHttp, &["generate"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "input_ids" => self.ids = value(object, InputIds { scope })?,
            "sampling_params" => self.max_new_tokens = value(object, Limit("max_new_tokens"))?,
            "extra_key" => {
                let rule = "extra_key must be a string";
                self.extra_key = value(object, scope.name(rule))?;
            }
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_new_tokens
    }

    fn take_salt(&mut self) -> Option<Cow<'a, str>> {
        self.extra_key.take()
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let ids = self.ids?;
        if ids.count == 0 {
            scope.fault(Fault::Field("input_ids cannot be empty"));
        }
        ids.prompt(scope)
    }
}

/// Images, videos and audio whose tokens are among the token ids, by modality. A placeholder without a hash
/// has none.
#[derive(Default)]
struct Features {
    /// The modality's name, and the hashes of its items.
    hashes: Vec<(String, Vec<u64>)>,
    /// The modality's name, and the number of its placeholders.
    placeholders: Vec<(String, u64)>,
}

impl Features {
    /// Adds an item for each placeholder, with the hash in the same place.
    fn add_to(&self, pieces: &mut Pieces<'_>) {
        for (modality, count) in &self.placeholders {
            let hashes = self.hashes.iter().rfind(|(name, _)| name == modality).map(|(_, hashes)| hashes);
            let mut hashes = hashes.into_iter().flatten().copied();
            for _ in 0..*count {
                pieces.placeholder(hashes.next().filter(|&hash| hash != NO_HASH));
            }
        }
    }
}

/// The place of a hash that is empty or not a string.
const NO_HASH: u64 = 0;

/// Identifies an item by the hash that the client gives it.
pub(super) fn item_of(hash: &str) -> u64 {
    if hash.is_empty() { NO_HASH } else { xxh64(hash.as_bytes(), 0) }
}

struct FeaturesReader;

impl<'a> Reader<'a> for FeaturesReader {
    type Value = Features;

    fn other(self) -> Features {
        Features::default()
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Features> {
        let mut features = Features::default();
        while let Some(name) = key(&mut object)? {
            match &*name {
                "mm_hashes" => features.hashes = value(&mut object, ByModality(Hashes))?,
                "mm_placeholders" => features.placeholders = value(&mut object, ByModality(ElementCount))?,
                _ => value(&mut object, Pass)?,
            }
        }
        Ok(features)
    }
}

/// Maximum number of modalities that are read.
const MAX_MODALITIES: usize = 16;

/// An object with a value for each modality.
struct ByModality<R>(R);

impl<'a, R: Reader<'a> + Copy> Reader<'a> for ByModality<R> {
    type Value = Vec<(String, R::Value)>;

    fn other(self) -> Self::Value {
        Vec::new()
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut modalities = Vec::new();
        while let Some(name) = key(&mut object)? {
            if modalities.len() == MAX_MODALITIES {
                value(&mut object, Pass)?;
                continue;
            }
            let of_modality = value(&mut object, self.0)?;
            modalities.push(((*name).to_owned(), of_modality));
        }
        Ok(modalities)
    }
}

/// The items of an array of hashes.
#[derive(Clone, Copy)]
struct Hashes;

impl<'a> Reader<'a> for Hashes {
    type Value = Vec<u64>;

    fn other(self) -> Self::Value {
        Vec::new()
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let mut items = Vec::new();
        while let Some(item) = element(&mut array, Hash)? {
            if items.len() < MAX_ITEMS {
                items.push(item);
            }
        }
        Ok(items)
    }
}

struct Hash;

impl<'a> Reader<'a> for Hash {
    type Value = u64;

    fn other(self) -> u64 {
        NO_HASH
    }

    fn string(self, value: Str<'a, '_>) -> u64 {
        item_of(&value)
    }
}

/// The length of an array.
#[derive(Clone, Copy)]
struct ElementCount;

impl<'a> Reader<'a> for ElementCount {
    type Value = u64;

    fn other(self) -> u64 {
        0
    }

    fn array(self, array: Array<'_, 'a>) -> json::Result<u64> {
        pass_array(array)
    }
}

/// Integers from 0 to 2³²−1, in any spelling; the message names the first other element.
struct TokenIds<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for TokenIds<'_, '_> {
    type Value = Ids;

    fn other(self) -> Ids {
        self.scope.fault(Fault::Field("token_ids must be an array of numbers"));
        Ids::default()
    }

    fn null(self) -> Ids {
        Ids::default()
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Ids> {
        let mut ids = Ids::default();
        let room = self.scope.options.keep_bytes / BYTES_PER_TOKEN;
        while let Some(number) = next_number(&mut array, IfNumber)? {
            let id = number.and_then(token_id).unwrap_or_else(|| {
                self.scope.fault(match number {
                    Some(number) => Fault::TokenId { index: ids.count, value: number.as_f64() },
                    None => Fault::Field("token_ids must be an array of numbers"),
                });
                0
            });
            ids.add(id, room);
        }
        Ok(ids)
    }
}

/// Integers from 0 to 2³²−1, spelled without fraction and exponent.
struct InputIds<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for InputIds<'_, '_> {
    type Value = Option<Ids>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("input_ids must be an array of uint32 integers"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let mut ids = Ids::default();
        let room = self.scope.options.keep_bytes / BYTES_PER_TOKEN;
        let mut wrong = false;
        while let Some(number) = next_number(&mut array, IfNumber)? {
            let id = match number {
                Some(Number::Unsigned(id)) => u32::try_from(id).ok(),
                Some(Number::Negative(_) | Number::Decimal(_) | Number::Float(_)) | None => None,
            };
            match id {
                Some(id) => ids.add(id, room),
                None => wrong = true,
            }
        }
        Ok(if wrong { self.other() } else { Some(ids) })
    }
}

struct IfNumber;

impl Reader<'_> for IfNumber {
    type Value = Option<Number>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, value: Number) -> Self::Value {
        Some(value)
    }
}

/// The integer in the member with this name of an object.
struct Limit(&'static str);

impl<'a> Reader<'a> for Limit {
    type Value = Option<u64>;

    fn other(self) -> Self::Value {
        None
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut limit = None;
        while let Some(name) = key(&mut object)? {
            if *name == *self.0 {
                limit = value(&mut object, IfCount)?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(limit)
    }
}
